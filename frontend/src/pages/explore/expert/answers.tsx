/** What the expert writes, and the tokens and activations that it fires on. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "react-router";

import { streamAblation } from "@/api/http";
import { writesQuery } from "@/api/queries";
import type {
  StepEvent,
  Ablation,
  AblationStoredEvent,
  Controls,
  ExpertDetail,
  ExpertRow,
  TokenCount,
  TokenEffect,
} from "@/api/types";
import { ActivationHistogram } from "@/components/plots/mini-histogram";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip, TokenChips } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { PaneHead } from "@/components/ui/pane-head";
import { Remaining } from "@/components/ui/remaining";
import { ErrorState } from "@/components/ui/states";
import { useStreamedWork } from "@/hooks/use-streamed-work";
import { formatCount, formatFixed, formatShare, formatSigned } from "@/lib/text/format";

import { useTopExamples } from "./examples";

const MAX_TOKENS = 5;

function TopTokens({ tokens }: { readonly tokens: readonly TokenCount[] }) {
  const largestShare = tokens[0]?.share ?? 1;
  const links = usePageLinks();
  return (
    <table className="top-tokens">
      <thead>
        <tr>
          <th scope="col" colSpan={2}>
            <Term id="top_tokens">Most often on</Term>
          </th>
          <th scope="col" className="num">
            <span className="sr">Share of active tokens, </span>%
          </th>
        </tr>
      </thead>
      <tbody>
        {tokens.slice(0, MAX_TOKENS).map((token) => (
          <tr key={token.id} title={`${formatCount(token.count)} times; token id ${formatCount(token.id)}`}>
            <td>
              <Link to={links.page("experts", { token: token.text })} aria-label={`Experts that fire on ${token.text}`}>
                <TokenChip text={token.text} />
              </Link>
            </td>
            <td className="bar-cell">
              <i className="bar-mark" style={{ width: `${(100 * token.share) / largestShare}%` }} />
            </td>
            <td className="num">{formatShare(token.share, 1)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

interface TokensAndActivationsProps {
  readonly row: ExpertRow;
  /** Activation to mark in the histogram. */
  readonly marker: number | null;
}

export function TokensAndActivations({ row, marker }: TokensAndActivationsProps) {
  if (row.active_tokens === 0) return null;
  return (
    <section aria-label="Tokens and activations">
      <PaneHead title="Tokens and activations" note={`${formatCount(row.active_tokens)} active tokens`} />
      <div className="answer-halves">
        <TopTokens tokens={row.top_tokens} />
        <div>
          <p className="dim">
            Tokens by <Term id="activation">activation</Term>
            <span className="extra">, log scale</span>
          </p>
          <ActivationHistogram row={row} height={100} caption="activation" marker={marker} />
        </div>
      </div>
    </section>
  );
}

const WRITTEN_TOKENS = 5;
const EXAMPLES_PER_STEP = 2;

interface WrittenTokensProps {
  readonly side: "promoted" | "suppressed";
  /** Null while they are computed: the rows are there already, so that nothing moves when their words come. */
  readonly tokens: readonly TokenEffect[] | null;
  readonly largestChange: number;
  /** The largest change of most random experts, marked on the bars. */
  readonly random: number;
  /** Whether the largest change exceeds those of most random experts. */
  readonly isMeaningful: boolean;
}

function WrittenTokens({ side, tokens, largestChange, random, isMeaningful }: WrittenTokensProps) {
  return (
    <table
      className={side === "promoted" ? "written up" : "written down"}
      data-pending={tokens === null || undefined}
      data-meaningful={isMeaningful || undefined}
    >
      <thead>
        <tr>
          <th scope="col">{side === "promoted" ? "Promotes" : "Suppresses"}</th>
          <th scope="col" className="num" colSpan={2}>
            Δ log p <span className="unit">nats</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {Array.from({ length: WRITTEN_TOKENS }, (_, i) => tokens?.[i]).map((token, i) => (
          <tr key={i}>
            <td className="what">{token !== undefined && <TokenChip text={token.text} />}</td>
            <td className="bar-cell" aria-hidden="true">
              <i className="bar-mark" style={{ width: `${(100 * Math.abs(token?.change ?? 0)) / largestChange}%` }} />
              {random > 0 && <u style={{ left: `${(100 * random) / largestChange}%` }} />}
            </td>
            <td className="num">{token !== undefined && formatSigned(token.change, 2)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/**
 * Whether the expert writes what follows where it fires. If not, its tokens may seem to contradict its label, which
 * mostly says where it fires.
 */
function Continuations({ run, expert, promoted }: ExpertProps & { readonly promoted: readonly TokenEffect[] }) {
  const examples = useTopExamples(run, expert);
  const next = examples.flatMap(({ token_ids: ids, position }) => ids[position + 1] ?? []);
  const written = next.filter((id) => promoted.some((token) => token.id === id)).length;
  if (next.length === 0) return null;
  return written === 0
    ? `None follows in ${next.length} top examples.`
    : `One follows in ${written} of ${next.length} top examples.`;
}

/**
 * What an expert writes: the stored mean over all activations, else computed on its strongest examples. There it is
 * compared with random experts in any case.
 */
export function useWrites(run: string, { row: { expert, active_tokens: active }, ablation }: ExpertDetail) {
  const { data, error, refetch } = useQuery({ ...writesQuery(run, expert), enabled: active > 0 });
  const { controls, supported_words: words } = data ?? {};
  return { writes: ablation ?? data ?? null, direct: data, controls, words, error, refetch };
}

/** What the tokens were measured on. */
export const describeSample = (
  measured: ExpertDetail["ablation"],
  computed: { readonly examples: number } | null | undefined,
) =>
  measured === null
    ? `direct effect on ${computed ? `${computed.examples} of ` : ""}its strongest examples`
    : `measured: mean over ${formatCount(measured.examples)} examples of all strengths`;

interface RandomKeyProps extends Controls {
  readonly factors: readonly string[];
  /** Where they were compared, if the tokens were measured elsewhere. */
  readonly on: string;
}

/** The mark on the bars, relative to the longest of each side. */
const RandomKey = ({ needed, experts, sentence, factors, on }: RandomKeyProps) => (
  <span title={sentence}>
    <u aria-hidden="true" /> {needed} of {experts.length} random experts: at most {factors[0]} its largest rise and{" "}
    {factors[1]} its largest fall{on}
  </span>
);

/** The next promoted tokens, of which a label may name some. */
const Also = ({ promoted }: Ablation) => (
  <p className="row writes-also dim">
    Also <TokenChips tokens={promoted.slice(WRITTEN_TOKENS)} className="whole-chips" />
  </p>
);

/** The largest change of any of the tokens. */
const largest = (tokens: readonly TokenEffect[] = []) => Math.max(0, ...tokens.map(({ change }) => Math.abs(change)));

/** Of rises and falls: the largest, that of most random experts relative to it, and whether they mean something. */
function sidesOf({ writes, direct, controls, error }: ReturnType<typeof useWrites>) {
  return (["promoted", "suppressed"] as const).map((side) => {
    const isUp = side === "promoted";
    const [own, computed] = [largest(writes?.[side]), largest(direct?.[side])];
    const random = Math.abs((isUp ? controls?.rise : controls?.fall) ?? 0);
    const isMeaningful = (isUp ? controls?.exceeded : controls?.fall_exceeded) ?? error !== null;
    return { side, own, factor: computed > 0 ? random / computed : 0, isMeaningful };
  });
}

export function Writes({ run, detail }: { readonly run: string; readonly detail: ExpertDetail }) {
  const { ablation, row } = detail;
  const { expert } = row;
  const computed = useWrites(run, detail);
  const { writes, controls, error, refetch } = computed;
  if (error !== null && ablation === null)
    return (
      <section className="answer" aria-label="Writes">
        <ErrorState error={error} onRetry={() => void refetch()} />
      </section>
    );
  const isKnown = controls !== undefined || error !== null;
  const sides = sidesOf(computed);
  const isMeaningful = sides.some((each) => each.isMeaningful);
  const isGrey = controls !== undefined && sides.some((each) => !each.isMeaningful);
  const largestChange = Math.max(1e-9, ...sides.flatMap(({ own, factor }) => [own, own * factor]));
  return (
    <section
      className="answer writes"
      data-meaningful={isMeaningful || undefined}
      aria-label="Writes"
      aria-busy={!isKnown}
    >
      <div className="row pane-h">
        <h2>
          <Term id="direct_logit_effect">Writes</Term>
        </h2>
        <span className="badge" title={controls?.sentence}>
          {controls?.verdict ?? (isKnown ? "not compared" : "comparing with random experts")}
        </span>
      </div>
      <div className="answer-halves">
        {sides.map((each) => (
          <WrittenTokens
            key={each.side}
            {...{ ...each, largestChange }}
            tokens={writes?.[each.side] ?? null}
            random={each.own * each.factor}
          />
        ))}
      </div>
      {ablation !== null && <Also {...ablation} />}
      <p className="row wrap writes-foot dim">
        {ablation === null && <Measure key={expert} run={run} expert={expert} />}
        <span>{describeSample(ablation, writes)}</span>
        {isGrey && <span>Grey: not above random.</span>}
        {sides[0]?.isMeaningful === true && (
          <Continuations run={run} expert={expert} promoted={writes?.promoted ?? []} />
        )}
        {controls !== undefined && controls.needed > 0 && (
          <RandomKey
            {...controls}
            factors={sides.map(({ factor }) => `${formatFixed(factor, 1)} ×`)}
            on={ablation === null ? "" : `, on ${computed.direct?.examples} of its strongest examples`}
          />
        )}
      </p>
    </section>
  );
}

/** Measures the effects of the expert on the server and stores them, with progress. */
function Measure({ run, expert }: ExpertProps) {
  const queries = useQueryClient();
  const work = useStreamedWork<null, StepEvent, AblationStoredEvent>(
    (_, signal) => streamAblation(run, expert, signal),
    () => queries.invalidateQueries({ queryKey: ["run", run] }),
  );
  const { done = 0, total = 0 } = work.progress ?? {};
  if (work.status === "working")
    return (
      <span className="row measuring" role="status">
        <Button size="small" icon="stop" onClick={work.stop}>
          Stop
        </Button>
        <progress aria-label="Measured examples" {...(done > 0 && { value: done / total })} />
        <span className="dim num">
          {done} of {total || "…"} examples
          <Remaining done={done} total={total} every={EXAMPLES_PER_STEP} />
        </span>
      </span>
    );
  return (
    <>
      <Button
        size="small"
        icon="chart"
        title="Ablates and amplifies it on examples of all strengths; a few seconds on a CPU"
        onClick={() => work.start(null)}
      >
        Measure this expert
      </Button>
      {work.failure !== null && <span className="bad">{work.failure}</span>}
    </>
  );
}

interface ExpertProps {
  readonly run: string;
  readonly expert: number;
}
