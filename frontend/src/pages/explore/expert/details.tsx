/** Details of an expert: a text to test it on, statistics, label scores, measured effects and weights. */

import "@/components/prompt/prompt.css";

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useState } from "react";
import { Link } from "react-router";

import { examplesQuery, expertMapQuery, expertQuery, randomExamplesQuery, routingQuery } from "@/api/queries";
import type {
  Ablation,
  AutomaticLabel,
  Column,
  ExpertDetail,
  ExpertMap,
  ExpertRow,
  RoutingResponse,
  RunSummary,
  TokenEffect,
} from "@/api/types";
import { formatValue } from "@/components/experts/columns";
import { shareAbove } from "@/components/plots/mini-histogram";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { usePageLinks } from "@/components/runs/page-links";
import { ColumnTerm, Term } from "@/components/terms/term";
import type { ExampleToken } from "@/components/tokens/concordance";
import { TokenChip } from "@/components/tokens/token-chip";
import { TokenGroup } from "@/components/tokens/token-group";
import { TokenText } from "@/components/tokens/token-text";
import { TokenTip } from "@/components/tokens/token-tip";
import { Button } from "@/components/ui/button";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useColumns } from "@/hooks/use-columns";
import { sequentialClass } from "@/lib/scales/colour-scale";
import { formatCompact, formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";
import type { Piece } from "@/lib/text/kwic";

import { RANDOM_GROUP } from "./expert-params";
import { EXAMPLES_PER_PAGE } from "./shown-examples";

export interface Activation {
  readonly pieces: readonly Piece[];
  /** Position of the strongest activation; null if the expert is inactive on all tokens. */
  readonly peak: number | null;
  /** Rank among the active experts of a token, starting at 1, and their number. */
  readonly ranks: ReadonlyMap<number, readonly [number, number]>;
}

/** Leaves out the start token that the server adds. */
export function findActivation(response: Pick<RoutingResponse, "tokens">, expert: number): Activation {
  const ranks = new Map<number, readonly [number, number]>();
  const pieces = response.tokens.flatMap((token, index) => {
    if (token.start) return [];
    const rank = token.experts.findIndex((active) => active.expert === expert);
    if (rank >= 0) ranks.set(index, [rank + 1, token.experts.length]);
    return [{ index, id: token.id, text: token.text, value: token.experts[rank]?.activation ?? null }];
  });
  const strongest = pieces.reduce<Piece | null>(
    (best, piece) => (piece.value !== null && piece.value > (best?.value ?? 0) ? piece : best),
    null,
  );
  return { pieces, peak: strongest?.index ?? null, ranks };
}

interface TestTextProps {
  readonly run: string;
  readonly expert: number;
  readonly largest: number;
  readonly text: string;
  readonly onText: (text: string) => void;
  readonly onHover: (activation: number | null) => void;
}

function summary({ pieces, peak }: Activation, largest: number): string {
  const active = pieces.filter((piece) => piece.value !== null).length;
  const strongest = pieces.find((piece) => piece.index === peak)?.value ?? null;
  if (strongest === null) return `Inactive on all ${formatCount(pieces.length)} tokens.`;
  const share = largest > 0 ? `, ${formatFixed((100 * strongest) / largest, 0)} % of its overall maximum` : "";
  return `Active on ${formatCount(active)} of ${formatCount(pieces.length)} tokens, maximum ${formatFixed(strongest)}${share}.`;
}

function TestedText({
  response,
  expert,
  largest,
  onHover,
}: Omit<TestTextProps, "run" | "text" | "onText"> & {
  readonly response: RoutingResponse;
}) {
  const activation = useMemo(() => findActivation(response, expert), [response, expert]);
  const tip = (piece: Piece) => {
    const rank = activation.ranks.get(piece.index);
    return (
      <TokenTip
        text={piece.text}
        id={piece.id}
        activation={piece.value}
        largest={largest}
        {...(rank !== undefined && { rank })}
      />
    );
  };
  return (
    <>
      <p role="status">{summary(activation, largest)}</p>
      <TokenGroup
        className="tested"
        label="Tested text"
        pieces={activation.pieces}
        tip={tip}
        onHover={(piece) => onHover(piece?.value ?? null)}
      >
        <TokenText
          pieces={activation.pieces}
          shade={(piece) => sequentialClass(piece.value ?? 0, largest)}
          peak={activation.peak}
          layout="block"
        />
      </TokenGroup>
    </>
  );
}

export function TestText({ run, expert, largest, text, onText, onHover }: TestTextProps) {
  const [draft, setDraft] = useState(text);
  const { data, error, isFetching, isPlaceholderData } = useQuery(routingQuery(run, text));
  const submit = () => onText(draft.trim());
  return (
    <section className="pane test-text">
      <div className="pane-h">
        <h2>Test on a text</h2>
        <span className="note">computes its activation on each token with the language model</span>
      </div>
      <div className="prompt-row">
        <PromptBox
          label="Text to test the expert on"
          placeholder="Type or paste a text"
          value={draft}
          onChange={setDraft}
          onSubmit={submit}
          onOpen="leave-focus"
        />
        <Button onClick={submit} disabled={draft.trim() === ""}>
          {isFetching ? "Testing" : "Test"} <kbd>{SUBMIT_KEY}</kbd>
        </Button>
      </div>
      {error !== null && <ErrorState error={error} />}
      {data !== undefined && !isPlaceholderData && text !== "" && (
        <TestedText response={data} expert={expert} largest={largest} onHover={onHover} />
      )}
    </section>
  );
}

interface FactProps {
  readonly name: ReactNode;
  readonly term?: TermId;
  readonly unit?: string | null;
  readonly children: ReactNode;
}

function Fact({ name, term, unit, children }: FactProps) {
  return (
    <>
      <dt>{term === undefined ? name : <Term id={term}>{name}</Term>}</dt>
      <dd>
        {children} {unit && <span>{unit}</span>}
      </dd>
    </>
  );
}

/** Statistics of an expert over the indexed text. */
export function Facts({ run, row }: { readonly run: RunSummary; readonly row: ExpertRow }) {
  const columns = useColumns().filter(({ shown }) => shown.includes("expert"));
  const facts = (chosen: readonly Column[]) =>
    chosen.map((column) => (
      <Fact key={column.key} name={<ColumnTerm column={column}>{column.title}</ColumnTerm>} unit={column.unit}>
        {formatValue(column, row)}
      </Fact>
    ));
  return (
    <section>
      <div className="pane-h">
        <h2>Statistics</h2>
        <span className="note">over the indexed text</span>
      </div>
      <dl className="kv">
        {facts(columns.filter(({ key }) => key === "density"))}
        <Fact name="Active tokens" unit={`of ${formatCompact(run.indexed_tokens ?? 0)}`}>
          {formatCount(row.active_tokens)}
        </Fact>
        {row.active_tokens > 0 && facts(columns.filter(({ key }) => key !== "density"))}
        {row.active_tokens > 0 && (
          <Fact name="Above half of max" term="above_half" unit="%">
            {formatPercent(shareAbove({ counts: row.histogram, high: row.histogram_high }, row.max_activation / 2), 0)}
          </Fact>
        )}
      </dl>
    </section>
  );
}

/** The example that contains the locked token; `seed` is the random sample's. */
function useLockedExample(run: string, expert: number, lock: ExampleToken | null, seed: number) {
  const isInSample = lock?.bin === RANDOM_GROUP;
  const options = examplesQuery(run, expert, isInSample ? 0 : (lock?.bin ?? 0), EXAMPLES_PER_PAGE);
  const stored = useInfiniteQuery({ ...options, enabled: lock !== null && !isInSample });
  const sample = useQuery({ ...randomExamplesQuery(run, expert, seed), enabled: isInSample });
  if (lock === null) return undefined;
  if (isInSample) return sample.data?.examples[lock.rank];
  return stored.data?.pages.flatMap((page) => page.examples).find((candidate) => candidate.rank === lock.rank);
}

/** The activation marked in the histogram: the hovered token's, otherwise the locked one's. */
export function useHistogramMarker(run: string, expert: number, lock: ExampleToken | null, seed: number) {
  const [hovered, setHovered] = useState<number | null>(null);
  const example = useLockedExample(run, expert, lock, seed);
  const locked = example?.active.find(([position]) => position === lock?.position)?.[1] ?? null;
  return { marker: hovered ?? (lock === null ? null : locked), onHover: setHovered };
}

function Measure({ name, children }: { readonly name: ReactNode; readonly children: ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

/** A share, or why there is none. */
const share = (value: number | null, reason: string) =>
  value === null ? <span>{reason}</span> : `${formatPercent(value, 0)} %`;

interface ScoresProps {
  readonly automatic: AutomaticLabel;
  readonly interval: ExpertDetail["accuracy_interval"];
}

function Scores({ automatic, interval }: ScoresProps) {
  const { balanced_accuracy: accuracy, precision, recall, test_examples: examples } = automatic;
  if (accuracy === null) return <p className="ablation-note">Not tested.</p>;
  // Only rule-based labels have an interval, and are tested on a sample of tokens.
  const isRule = interval !== null;
  return (
    <>
      <dl className="kv">
        <Measure name="Balanced accuracy">
          {formatFixed(accuracy)}{" "}
          {isRule && (
            <span>
              ({formatFixed(interval[0])} to {formatFixed(interval[1])})
            </span>
          )}
        </Measure>
        {isRule && (
          <>
            <Measure name={<Term id="precision">Precision</Term>}>{share(precision, "no match in the sample")}</Measure>
            <Measure name={<Term id="recall">Recall</Term>}>{share(recall, "inactive in the sample")}</Measure>
          </>
        )}
      </dl>
      <p className="ablation-note">
        Balanced accuracy (0.5 is chance): on {examples} held-out examples
        {isRule ? " and on inactive tokens. Its interval (95 %, Wilson) is over the examples." : "."}
      </p>
      {isRule && (
        <p className="ablation-note">
          Precision and recall: on held-out tokens, weak activations included. Their number is not stored, so there is
          no interval.
        </p>
      )}
    </>
  );
}

export function LabelQuality({ detail }: { readonly detail: ExpertDetail }) {
  const { automatic, label } = detail.row;
  if (automatic === null) return null;
  return (
    <section>
      <div className="pane-h">
        <h2>
          <Term id="automatic_label">Automatic label</Term>
        </h2>
        <span className="note">{automatic.label}</span>
      </div>
      <Scores automatic={automatic} interval={detail.accuracy_interval} />
      {!automatic.is_clear && <p className="ablation-note">Too weak for a name: {automatic.weaknesses.join(", ")}.</p>}
      {label !== null && <p className="ablation-note">The user label is not tested.</p>}
    </section>
  );
}

interface RowProps {
  readonly name: string;
  readonly term: TermId;
  readonly children: ReactNode;
  readonly other?: string | undefined;
  readonly direction?: string | undefined;
}

function Row({ name, term, children, other = "", direction = "" }: RowProps) {
  return (
    <tr>
      <th scope="row">
        <Term id={term}>{name}</Term>
      </th>
      <td className="num own">{children}</td>
      <td className="num">{other}</td>
      <td className="num">{direction}</td>
    </tr>
  );
}

const percent = (value: number | null) => (value === null ? "–" : formatPercent(value, 1));
const loss = (value: number | null) => (value === null ? "–" : formatSigned(value, 4));

function EffectsTable({ ablation }: { readonly ablation: Ablation }) {
  const links = usePageLinks();
  return (
    <table className="ablation-effects">
      <thead>
        <tr>
          <th>
            <span className="sr">Measure</span>
          </th>
          <th className="num">Own</th>
          <th className="num">
            <Link to={links.expert(ablation.random_expert)} title="A random expert of the same density">
              Random<span className="sr"> expert {ablation.random_expert}</span>
            </Link>
          </th>
          <th className="num" title="A random direction of the same norm">
            Direction<span className="sr">, random</span>
          </th>
        </tr>
      </thead>
      <tbody>
        <Row name="Δ loss, ablated" term="loss_increase" other={loss(ablation.random_loss_increase)}>
          {loss(ablation.loss_increase)}
        </Row>
        <Row
          name="KL, amplified"
          term="kl_amplified"
          other={formatFixed(ablation.kl_random_expert, 4)}
          direction={formatFixed(ablation.kl_random_direction, 4)}
        >
          {formatFixed(ablation.kl_amplified, 4)}
        </Row>
        <Row name="Output share, %" term="output_share" other={percent(ablation.random_output_share)}>
          {formatPercent(ablation.output_share, 1)}
        </Row>
      </tbody>
    </table>
  );
}

/** Stored effects; nothing before they are measured. */
export function CausalImportance({ run, expert }: { readonly run: string; readonly expert: number }) {
  const { data } = useQuery(expertQuery(run, expert));
  const ablation = data?.ablation ?? null;
  if (ablation === null) return null;
  return (
    <section>
      <div className="pane-h">
        <h2>Causal importance</h2>
        <span className="note">
          <Term id="nats">nats</Term>, {formatCount(ablation.examples)} examples
        </span>
      </div>
      <EffectsTable ablation={ablation} />
      <p className="ablation-note">
        Baselines: a random expert of the same density, a random direction. Means without intervals: a loss change as
        small as the random expert’s is noise. <Term id="input_dependence">Input dependence</Term>{" "}
        {formatPercent(ablation.input_dependence, 0)}&nbsp;%.
      </p>
    </section>
  );
}

function Tokens({ tokens }: { readonly tokens: readonly TokenEffect[] }) {
  return (
    <span className="chips">
      {tokens.map((token) => (
        <TokenChip key={token.id} text={token.text} />
      ))}
    </span>
  );
}

function Directions({ map }: { readonly map: ExpertMap }) {
  return (
    <div className="matrix-scroll">
      <table className="matrix-table">
        <caption>Leading singular directions, both signs</caption>
        <thead>
          <tr>
            <th className="num">Share</th>
            <th>Promoted in one direction</th>
            <th>Promoted in the opposite direction</th>
          </tr>
        </thead>
        <tbody>
          {map.directions.map((direction, i) => (
            <tr key={i}>
              <td className="num">{formatPercent(direction.share, 1)} %</td>
              <td>
                <Tokens tokens={direction.positive_tokens} />
              </td>
              <td>
                <Tokens tokens={direction.negative_tokens} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface DimensionsProps {
  readonly caption: string;
  readonly dimensions: ExpertMap["largest_scalings"];
}

function OutputGains({ caption, dimensions }: DimensionsProps) {
  return (
    <table className="matrix-table">
      <caption>{caption}</caption>
      <thead>
        <tr>
          <th className="num">Dimension</th>
          <th className="num">Gain c</th>
          <th className="num">Relative to RMS</th>
        </tr>
      </thead>
      <tbody>
        {dimensions.map(({ dimension, scaling, relative }) => (
          <tr key={dimension}>
            <td className="num">{dimension}</td>
            <td className="num">{formatSigned(scaling, 3)}</td>
            <td className="num">× {formatFixed(relative, 2)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function MatrixSvd({ map }: { readonly map: ExpertMap }) {
  return (
    <>
      <p className="ablation-note">
        <Term id="stable_rank">Stable rank</Term> <b>{formatFixed(map.stable_rank, 1)}</b>.
        {map.small_scaling_share !== null &&
          ` ${formatPercent(map.small_scaling_share, 1)} % of the output dimensions have a gain near zero.`}
      </p>
      <div className="matrix">
        <Directions map={map} />
        {map.largest_scalings.length > 0 && (
          <OutputGains caption="Largest output gains" dimensions={map.largest_scalings} />
        )}
        {map.smallest_scalings.length > 0 && (
          <OutputGains caption="Smallest output gains" dimensions={map.smallest_scalings} />
        )}
      </div>
      <p className="ablation-note">
        Computed from the weights alone. Tokens: final norm and unembedding applied to the direction. Later layers are
        ignored, so in early layers the tokens often mean little. Relative to RMS: |c| divided by its root mean square
        over all experts in that dimension; below 0.1 counts as near zero.
      </p>
    </>
  );
}

/** Whether the run's experts are matrices of a single layer. Transcoder features are single directions. */
export const hasMatrix = (run: RunSummary) => run.method.endsWith("mxd");

export function WeightAnalysis({ run, expert }: { readonly run: string; readonly expert: number }) {
  const [isShown, setShown] = useState(false);
  const { data, error, refetch } = useQuery(expertMapQuery(run, expert, isShown));
  return (
    <section className="pane matrix-pane">
      <div className="pane-h">
        <h2>Weight analysis</h2>
        <span className="note">SVD of its matrix, independent of any text</span>
        <span className="grow" />
        {!isShown && (
          <Button size="small" onClick={() => setShown(true)}>
            Show SVD
          </Button>
        )}
      </div>
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {isShown && error === null && data === undefined && <LoadingState label="Computing SVD" rows={4} />}
      {data !== undefined && <MatrixSvd map={data} />}
    </section>
  );
}
