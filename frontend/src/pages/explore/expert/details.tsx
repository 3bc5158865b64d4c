/** Details of an expert: a text to test it on, statistics, label scores, measured effects and weights. */

import "@/components/prompt/prompt.css";

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useState } from "react";
import { Link } from "react-router";

import { examplesQuery, expertMapQuery, randomExamplesQuery, routingQuery } from "@/api/queries";
import type {
  Ablation,
  AutomaticLabel,
  Column,
  ExpertDetail,
  ExpertMap,
  ExpertRow,
  RoutingResponse,
  RunSummary,
  TermId,
} from "@/api/types";
import { formatValue } from "@/components/experts/columns";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { usePageLinks } from "@/components/runs/page-links";
import { ColumnTerm, Term } from "@/components/terms/term";
import type { ExampleToken } from "@/components/tokens/concordance";
import { TokenChips, TokenTip } from "@/components/tokens/token-chip";
import { TokenGroup, TokenText } from "@/components/tokens/token-text";
import { Button } from "@/components/ui/button";
import { PaneHead } from "@/components/ui/pane-head";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useColumns } from "@/hooks/use-experts";
import { sequentialClass } from "@/lib/scales/colour-scale";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";
import type { Piece } from "@/lib/text/kwic";

import type { ExamplesProps } from "./examples";
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

function summary({ pieces, peak }: Activation, largest: number): string {
  const active = pieces.filter((piece) => piece.value !== null).length;
  const strongest = pieces.find((piece) => piece.index === peak)?.value ?? null;
  if (strongest === null) return `Inactive on all ${formatCount(pieces.length)} tokens.`;
  const share = largest > 0 ? `, ${formatFixed((100 * strongest) / largest, 0)} % of its overall maximum` : "";
  return `Active on ${formatCount(active)} of ${formatCount(pieces.length)} tokens, maximum ${formatFixed(strongest)}${share}.`;
}

interface TestedProps extends Pick<ExamplesProps, "detail" | "onHover"> {
  readonly response: RoutingResponse;
}

function TestedText({ response, detail, onHover }: TestedProps) {
  const { expert, max_activation: largest } = detail.row;
  const activation = useMemo(() => findActivation(response, expert), [response, expert]);
  const tip = ({ index, text, id, value }: Piece) => {
    const rank = activation.ranks.get(index);
    return <TokenTip text={text} id={id} activation={value} largest={largest} {...(rank && { rank })} />;
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

export function TestText({ run, detail, params: { test: text }, setParams, onHover }: ExamplesProps) {
  const [draft, setDraft] = useState(text);
  const { data, error, isFetching, isPlaceholderData } = useQuery(routingQuery(run, text));
  const submit = () => setParams({ test: draft.trim() });
  return (
    <section className="pane test-text">
      <PaneHead title="Test on a text" note="computes its activation on each token with the language model" />
      <div className="prompt-row">
        <PromptBox
          label="Text to test the expert on"
          placeholder="Type or paste a text"
          draft={{ text: draft, setText: setDraft, commit: submit }}
          onOpen="leave-focus"
        />
        <Button onClick={submit} disabled={draft.trim() === ""}>
          {isFetching ? "Testing" : "Test"} <kbd>{SUBMIT_KEY}</kbd>
        </Button>
      </div>
      {error !== null && <ErrorState error={error} />}
      {data !== undefined && !isPlaceholderData && text !== "" && (
        <TestedText response={data} detail={detail} onHover={onHover} />
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
export function Facts({ row }: { readonly row: ExpertRow }) {
  const isShown = ({ key, shown }: Column) => shown.includes("expert") && (key === "density" || row.active_tokens > 0);
  const columns = useColumns().filter(isShown);
  return (
    <section>
      <PaneHead title="Statistics" note="over the indexed text" />
      <dl className="kv">
        {columns.map((column) => (
          <Fact key={column.key} name={<ColumnTerm column={column}>{column.title}</ColumnTerm>} unit={column.unit}>
            {formatValue(column, row)}
          </Fact>
        ))}
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

/** A share, or why there is none. */
const share = (value: number | null, reason: string) =>
  value === null ? <span>{reason}</span> : `${formatPercent(value, 0)} %`;

interface ScoresProps {
  readonly automatic: AutomaticLabel;
  readonly interval: ExpertDetail["accuracy_interval"];
}

function Scores({ automatic, interval }: ScoresProps) {
  const { balanced_accuracy: accuracy, precision, recall, test_examples: examples } = automatic;
  if (accuracy === null) return <p className="ink2">Not tested.</p>;
  // Only rule-based labels have an interval, and are tested on a sample of tokens.
  const isRule = interval !== null;
  return (
    <>
      <dl className="kv">
        <Fact name="Balanced accuracy">
          {formatFixed(accuracy)}{" "}
          {isRule && (
            <span>
              ({formatFixed(interval[0])} to {formatFixed(interval[1])})
            </span>
          )}
        </Fact>
        {isRule && (
          <>
            <Fact name="Precision" term="precision">
              {share(precision, "no match in the sample")}
            </Fact>
            <Fact name="Recall" term="recall">
              {share(recall, "inactive in the sample")}
            </Fact>
          </>
        )}
      </dl>
      <p className="ink2">
        Balanced accuracy: on {examples} held-out examples{isRule && " and inactive tokens"}; 0.5 is chance.
        {isRule && " 95 % interval (Wilson) over the examples. Precision and recall count weak activations too."}
      </p>
    </>
  );
}

export function LabelQuality({ detail }: { readonly detail: ExpertDetail }) {
  const { automatic } = detail.row;
  if (automatic === null) return null;
  return (
    <section>
      <PaneHead title="Automatic label" term="automatic_label" note={automatic.label} />
      <Scores automatic={automatic} interval={detail.accuracy_interval} />
      {!automatic.is_clear && <p className="ink2">Too weak for a name: {automatic.weaknesses.join(", ")}.</p>}
    </section>
  );
}

const percent = (value: number | null) => (value === null ? "–" : formatPercent(value, 1));
const loss = (value: number | null) => (value === null ? "–" : formatSigned(value, 4));

/** Each with its term, the expert's own value, and those of both baselines. */
const effects = (it: Ablation): readonly (readonly [name: string, term: TermId, ...values: string[]])[] => [
  ["Δ loss, ablated", "loss_increase", loss(it.loss_increase), loss(it.random_loss_increase), ""],
  [
    ...(["KL, amplified", "kl_amplified"] as const),
    ...[it.kl_amplified, it.kl_random_expert, it.kl_random_direction].map((kl) => formatFixed(kl, 4)),
  ],
  ["Output share, %", "output_share", formatPercent(it.output_share, 1), percent(it.random_output_share), ""],
];

/** Stored effects. */
export function CausalImportance({ ablation }: { readonly ablation: Ablation }) {
  const links = usePageLinks();
  return (
    <section>
      <PaneHead title="Causal importance" note={`nats, ${formatCount(ablation.examples)} examples`} />
      <table className="ablation-effects">
        <thead>
          <tr>
            <th>
              <span className="sr">Measure</span>
            </th>
            <th className="num">Own</th>
            <th className="num">
              <Link to={links.expert(ablation.random_expert)}>
                Random<span className="sr"> expert {ablation.random_expert}</span>
              </Link>
            </th>
            <th className="num">
              Direction<span className="sr">, random</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {effects(ablation).map(([name, term, ...values]) => (
            <tr key={name}>
              <th scope="row">
                <Term id={term}>{name}</Term>
              </th>
              {values.map((value, i) => (
                <td key={i} className={i === 0 ? "num own" : "num"}>
                  {value}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <p className="ink2">
        Random: an expert of the same density. Direction: a random one of the same norm. Means without intervals: a loss
        change as small as the random expert’s is noise. <Term id="input_dependence">Input dependence</Term>{" "}
        {formatPercent(ablation.input_dependence, 0)}&nbsp;%.
      </p>
    </section>
  );
}

interface WeightTableProps {
  readonly caption: string;
  readonly heads: readonly string[];
  /** Texts, which are numbers, and tokens. */
  readonly rows: readonly (readonly ReactNode[])[];
}

function WeightTable({ caption, heads, rows }: WeightTableProps) {
  return (
    <div className="matrix-scroll">
      <table className="matrix-table">
        <caption>{caption}</caption>
        <thead>
          <tr>
            {heads.map((head) => (
              <th key={head}>{head}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((cells, i) => (
            <tr key={i}>
              {cells.map((cell, column) => (
                <td key={column} className={typeof cell === "string" ? "num" : undefined}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const gainRow = ({ dimension, scaling, relative }: ExpertMap["largest_scalings"][number]) => [
  String(dimension),
  formatSigned(scaling, 3),
  `× ${formatFixed(relative, 2)}`,
];

function MatrixSvd({ map }: { readonly map: ExpertMap }) {
  return (
    <>
      <p className="ink2">
        <Term id="stable_rank">Stable rank</Term> <b>{formatFixed(map.stable_rank, 1)}</b>.
        {map.small_scaling_share !== null &&
          ` ${formatPercent(map.small_scaling_share, 1)} % of the output dimensions have a gain near zero.`}
      </p>
      <div className="matrix">
        <WeightTable
          caption="Leading singular directions, both signs"
          heads={["Share", "Promoted in one direction", "Promoted in the opposite direction"]}
          rows={map.directions.map(({ share, positive_tokens: positive, negative_tokens: negative }) => [
            `${formatPercent(share, 1)} %`,
            <TokenChips key="positive" tokens={positive} />,
            <TokenChips key="negative" tokens={negative} />,
          ])}
        />
        {(["largest", "smallest"] as const)
          .filter((end) => map[`${end}_scalings`].length > 0)
          .map((end) => (
            <WeightTable
              key={end}
              caption={`${end === "largest" ? "Largest" : "Smallest"} output gains`}
              heads={["Dimension", "Gain c", "Relative to RMS"]}
              rows={map[`${end}_scalings`].map(gainRow)}
            />
          ))}
      </div>
      <p className="ink2">
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
      <PaneHead title="Weight analysis" note="singular values and directions of its matrix">
        {!isShown && (
          <Button size="small" onClick={() => setShown(true)}>
            Show SVD
          </Button>
        )}
      </PaneHead>
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {isShown && error === null && data === undefined && <LoadingState label="Computing SVD" rows={4} />}
      {data !== undefined && <MatrixSvd map={data} />}
    </section>
  );
}
