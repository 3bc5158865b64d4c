/** The difference between the routings of two texts: by aligned token as a map, or by whole text as lists. */

import "./difference.css";

import { Fragment, useMemo } from "react";

import type { RoutingResponse, RunSummary } from "@/api/types";
import { WeakLast } from "@/components/experts/expert-link";
import { useShare } from "@/components/layout/share";
import { effectiveK } from "@/components/runs/k-slider";
import { Term } from "@/components/terms/term";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { TokenChip } from "@/components/tokens/token-chip";
import { ScrollBox } from "@/components/ui/pane-head";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { axisLimit, divergingClass } from "@/lib/scales/colour-scale";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";
import { FoundExpert } from "@/pages/prompt/expert-name";
import { MoreRows } from "@/pages/prompt/routing/foot";
import { RowHead } from "@/pages/prompt/routing/heat-map/heat-map";
import { columnText } from "@/pages/prompt/routing/heat-map/heat-rows";
import type { RoutingState } from "@/pages/prompt/routing/routing-params";

import {
  alignRoutings,
  byScore,
  changeAt,
  changeOf,
  type DifferenceRow,
  differenceRows,
  differingShare,
  firstDifference,
  isAlike,
  isChanged,
  placesOf,
  sharedDifference,
  tellingOf,
  type TokenPair,
} from "./difference";

/** Longer maps are unreadable and slow to render. */
const MAX_COLUMNS = 160;
/** Height of the bar of a token without a common expert, in pixels. */
const BAR = 18;

const headOf = (token: TokenPair["a"]) => (token === null ? "–" : columnText(token.text));

interface TableProps {
  /** Pairs of aligned tokens; null for whole texts. */
  readonly pairs: readonly TokenPair[] | null;
  readonly rows: ReturnType<typeof byScore>;
  /** All experts that are active in either text. */
  readonly all: readonly DifferenceRow[];
  readonly end: number;
}

/** A column for each pair of tokens from the first that differs, with the share of its activation that does. */
function PairHeads({ pairs, all }: { readonly pairs: readonly TokenPair[]; readonly all: readonly DifferenceRow[] }) {
  const from = firstDifference(pairs);
  return pairs.slice(from, from + MAX_COLUMNS).map((pair, i) => {
    const share = differingShare(all, new Set([from + i]));
    return (
      <th key={i} scope="col">
        <span className={isChanged(pair) ? "down block" : "block"}>{headOf(pair.a)}</span>
        {isChanged(pair) && <span className="up block">{headOf(pair.b)}</span>}
        <span className="klb" style={{ height: Math.max(1, BAR * share) }} />
        <small>{formatPercent(share, 0)}</small>
      </th>
    );
  });
}

function TableHead({ pairs, all }: Pick<TableProps, "pairs" | "all">) {
  return (
    <thead>
      <tr>
        {pairs === null ? (
          <>
            <th scope="col">Expert</th>
            <th className="sum wide-only on-token">Strongest on</th>
            <th className="sum down">First text, sum</th>
            <th className="sum up">Second text, sum</th>
          </>
        ) : (
          <>
            <th scope="col">
              <Term id="differing_activation">Differing activation</Term> <span className="unit">%</span>
            </th>
            <PairHeads pairs={pairs} all={all} />
          </>
        )}
        <th scope="col" className="sum wide-only" title="Summed activation in the second text minus that in the first">
          Change
        </th>
        <th scope="col" className="sum wide-only" aria-sort="descending">
          Score ↓
        </th>
      </tr>
    </thead>
  );
}

/** The activations over both texts, in the colour of the text with more. */
function Sums({ row, end }: { readonly row: DifferenceRow; readonly end: number }) {
  const colour = (isMore: boolean) => (isMore ? `num ${divergingClass(changeOf(row), end)}` : "num");
  return (
    <>
      <td className="wide-only on-token">
        <TokenChip text={row.peak} />
      </td>
      <td className={colour(row.a > row.b)}>{row.a === 0 ? 0 : formatFixed(row.a)}</td>
      <td className={colour(row.b > row.a)}>{row.b === 0 ? 0 : formatFixed(row.b)}</td>
    </>
  );
}

/** The experts, by score: a column for each pair of tokens, or for each whole text. */
function DifferenceTable({ pairs, rows, all, end }: TableProps) {
  const from = pairs === null ? 0 : firstDifference(pairs);
  const columns = pairs?.slice(from, from + MAX_COLUMNS).map((_, i) => from + i);
  const digits = end >= 4 ? 1 : 2;
  const cell = ({ cells }: DifferenceRow, column: number) => {
    const { a, b } = cells.get(column) ?? { a: 0, b: 0 };
    const isShown = Number((b - a).toFixed(digits)) !== 0;
    return (
      <td
        key={column}
        className={isShown ? `num ${divergingClass(b - a, end)}` : undefined}
        title={isShown ? `First text ${formatFixed(a)}, second text ${formatFixed(b)}` : undefined}
      >
        {isShown && formatSigned(b - a, digits)}
      </td>
    );
  };
  return (
    <ScrollBox className="difference-box" label="Difference by token">
      <table className="heat difference" aria-label="Differences, tokens by experts">
        <TableHead pairs={pairs} all={all} />
        <tbody>
          {rows.map(({ row, score, isFirst }, i) => (
            <tr key={row.expert} className={!isFirst && rows[i - 1]?.isFirst === true ? "next-group" : undefined}>
              <RowHead expert={row.expert} info={row.info} />
              {columns?.map((column) => cell(row, column)) ?? <Sums row={row} end={end} />}
              <td className="num sum wide-only">{formatSigned(changeOf(row), 2)}</td>
              <td className="num sum wide-only">{formatFixed(score, 1)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}

interface FindingProps extends Pick<TableProps, "pairs" | "all"> {
  readonly isMixed: boolean;
  /** Tokens of both texts. */
  readonly lengths: readonly number[];
}

/** Most changed words with a sentence. */
const MAX_WORDS = 3;

const Changes = ({ of }: { readonly of: ReturnType<typeof byScore> }) =>
  of.map(({ row, change }, order) => (
    <Fragment key={row.expert}>
      {order > 0 && ", "}
      {change < 0 ? "less" : "more"}{" "}
      <FoundExpert info={row.info} expert={row.expert}>
        {formatSigned(change, 2)}
      </FoundExpert>
    </Fragment>
  ));

/** The first experts of the table in a part, and how much of the activation differs. */
function Part({
  all,
  part,
  isMixed,
}: Pick<FindingProps, "all" | "isMixed"> & { readonly part: ReadonlySet<number> | null }) {
  const { told, larger } = tellingOf(all, part, isMixed);
  return (
    <>
      {larger.length > 0 && "with a label that is not weak: "}
      <Changes of={told} />
      {larger.length > 0 && "; largest of all: "}
      <Changes of={larger} />; <b>{formatPercent(differingShare(all, part), 0)} %</b> of the activation differs.
    </>
  );
}

/** The finding: which experts differ most at each changed word and on the equal tokens after it, and how much in all. */
function Finding({ all, pairs, isMixed, lengths }: FindingProps) {
  const { changed, equal } = placesOf(pairs ?? []);
  const size = ({ part }: (typeof changed)[number]) => byScore(all, part, true)[0]?.score ?? 0;
  const shown = changed.toSorted((x, y) => size(y) - size(x)).slice(0, MAX_WORDS);
  const parts = { all, isMixed };
  if (byScore(all, pairs === null ? null : new Set(pairs.keys()), isMixed).length === 0) {
    return (
      <p className="finding" role="status">
        Both texts activate the same experts equally strongly.
      </p>
    );
  }
  return (
    <div className="finding" role="status">
      {shown.map(({ part, a, b }) => (
        <p key={[...part][0]}>
          <span className="mono changed cut down">{a || "nothing"}</span> →{" "}
          <span className="mono changed cut up">{b || "nothing"}</span>: <Part {...parts} part={part} />
        </p>
      ))}
      {shown.length < changed.length && (
        <p className="dim">
          The {MAX_WORDS} largest of {changed.length} changes.
        </p>
      )}
      {pairs === null && (
        <p>
          Summed over {lengths.join(" and ")} tokens: <Part {...parts} part={null} />
        </p>
      )}
      {equal.size > 0 && (
        <p>
          On the {equal.size === 1 ? "equal token" : `${equal.size} equal tokens`} after that:{" "}
          <Part {...parts} part={equal} />
        </p>
      )}
    </div>
  );
}

/** Which tokens the map leaves out. */
function alignedNote(pairs: readonly TokenPair[]): string {
  const from = firstDifference(pairs);
  const first = from === 1 ? "The first token is" : `The first ${from} tokens are`;
  return [
    ...(from > 0 ? [`${first} the same in both: no expert differs there.`] : []),
    ...(pairs.length - from > MAX_COLUMNS ? [`The first ${MAX_COLUMNS} of the others are shown.`] : []),
  ].join(" ");
}

interface DifferenceViewProps extends RoutingState {
  readonly run: RunSummary;
  readonly first: RoutingResponse;
  readonly second: RoutingResponse;
}

/** The experts, by score, and the pairs of tokens, also null where whole texts are compared. */
function useDifference({ first, second, params: { align, mixed: isMixed } }: DifferenceViewProps) {
  return useMemo(() => {
    const pairs = alignRoutings(first, second);
    const all = differenceRows(pairs, { ...first.experts, ...second.experts });
    const isAligned = align === "auto" ? isAlike(pairs) : align === "aligned";
    const every = isAligned ? new Set(pairs.keys()) : null;
    const rows = byScore(all, every, isMixed);
    const end = axisLimit(Math.max(0, ...all.map((row) => Math.abs(changeAt(row, every)))));
    return { all, rows, end, pairs, aligned: isAligned ? pairs : null };
  }, [first, second, align, isMixed]);
}

export function DifferenceView(props: DifferenceViewProps) {
  const { run, params, setParams } = props;
  const { all, rows, end, pairs, aligned } = useDifference(props);
  const lengths = (["a", "b"] as const).map((side) => pairs.filter((pair) => pair[side] !== null).length);
  const shown = rows.slice(0, params.rows);
  useShare(run.name, () => ({
    kind: "difference",
    text: params.prompt,
    second: params.second,
    k: effectiveK(run, params.k),
    ...sharedDifference(run.name, pairs.slice(0, MAX_COLUMNS), shown),
  }));
  return (
    <section className="difference-pane" aria-label="Difference between the two routings">
      <Finding all={all} pairs={aligned} isMixed={params.mixed} lengths={lengths} />
      <div className="row wrap pane-h">
        <RampLegend
          kind="diverging"
          low={`First text −${formatFixed(end, 1)}`}
          high={`+${formatFixed(end, 1)} second text`}
        />
        <p className="dim">
          {shown.length < rows.length ? `${shown.length} of ${formatCount(rows.length)}` : rows.length} experts that
          differ, by <Term id="difference_score">{aligned ? "largest difference" : "change"} × rarity</Term>
        </p>
        <span className="grow" />
        <div className="row">
          <WeakLast params={params} setParams={setParams} />
          <SegmentedControl
            label="Comparison"
            value={aligned ? "aligned" : "apart"}
            onChange={(next) => setParams({ align: next })}
            segments={segmentsOf({ aligned: "Aligned tokens", apart: "Whole texts" })}
          />
        </div>
      </div>
      <DifferenceTable pairs={aligned} rows={shown} {...{ all, end }} />
      <div className="row wrap heat-foot">
        <MoreRows hidden={rows.length - shown.length} setParams={setParams} />
        <p className="dim">
          {aligned !== null && alignedNote(aligned)}
          {aligned === null && params.align === "auto" && "Few tokens are equal in both: whole texts are compared."}
        </p>
      </div>
    </section>
  );
}
