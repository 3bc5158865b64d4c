/** The difference between the routings of two texts: by aligned token as a map, or by whole text as lists. */

import "./difference.css";

import { Fragment, useMemo } from "react";

import type { RoutingResponse, RunSummary } from "@/api/types";
import { ItalicNote } from "@/components/experts/expert-link";
import { useShare } from "@/components/layout/share";
import { effectiveK } from "@/components/runs/k-slider";
import { Term } from "@/components/terms/term";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { ScrollBox } from "@/components/ui/pane-head";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { axisLimit, divergingClass } from "@/lib/scales/colour-scale";
import { formatCount, formatFixed, formatPlural, formatSigned } from "@/lib/text/format";
import { FoundExpert } from "@/pages/prompt/expert-name";
import { MoreRows } from "@/pages/prompt/routing/foot";
import { RowHead } from "@/pages/prompt/routing/heat-map/heat-map";
import { columnText } from "@/pages/prompt/routing/heat-map/heat-rows";
import type { RoutingState } from "@/pages/prompt/routing/routing-params";

import {
  alignRoutings,
  changedWords,
  type DifferenceRow,
  differenceRows,
  firstDifference,
  sharedDifference,
  type TokenPair,
} from "./difference";

/** Longer maps are unreadable and slow to render. */
const MAX_COLUMNS = 160;

/** Smaller differences in activation are rounding errors. */
const ROUNDING_ERROR = 1e-3;

const isChanged = ({ a, b }: TokenPair) => a?.id !== b?.id;
const headOf = (token: TokenPair["a"]) => (token === null ? "–" : columnText(token.text));

interface TableProps {
  /** Pairs of aligned tokens; null for whole texts. */
  readonly pairs: readonly TokenPair[] | null;
  readonly rows: readonly DifferenceRow[];
  readonly end: number;
}

/** The experts, by score: a column for each pair of tokens from the first that differs, or for each whole text. */
function DifferenceTable({ pairs, rows, end }: TableProps) {
  const from = pairs === null ? 0 : firstDifference(pairs);
  const shown = pairs?.slice(from, from + MAX_COLUMNS);
  const digits = end >= 4 ? 1 : 2;
  const changes = shown === undefined ? "sum" : "sum wide-only";
  const cell = (row: DifferenceRow, i: number) => {
    const value = row.cells.get(from + i) ?? 0;
    const isShown = Number(value.toFixed(digits)) !== 0;
    return (
      <td key={i} className={isShown ? `num ${divergingClass(value, end)}` : undefined}>
        {isShown && formatSigned(value, digits)}
      </td>
    );
  };
  return (
    <ScrollBox className="difference-box" label="Difference by token">
      <table className="heat difference" aria-label="Differences, tokens by experts">
        <thead>
          <tr>
            <th scope="col">Expert</th>
            {shown?.map((pair, i) => (
              <th key={i} scope="col">
                <span className={isChanged(pair) ? "down block" : undefined}>{headOf(pair.a)}</span>
                {isChanged(pair) && <span className="up block">{headOf(pair.b)}</span>}
              </th>
            )) ?? (
              <>
                <th className="sum">First text</th>
                <th className="sum">Second text</th>
              </>
            )}
            <th scope="col" className={changes} title="Summed activation in the second text minus that in the first">
              Change
            </th>
            <th scope="col" className="sum" aria-sort="descending">
              Score ↓
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.expert}>
              <RowHead expert={row.expert} info={row.info} />
              {shown?.map((_, i) => cell(row, i)) ?? (
                <>
                  <td className="num">{formatFixed(row.a)}</td>
                  <td className="num">{formatFixed(row.b)}</td>
                </>
              )}
              <td className={`num ${changes} ${shown === undefined ? divergingClass(row.change, end) : ""}`}>
                {formatSigned(row.change, 2)}
              </td>
              <td className="num sum">{formatFixed(row.score, 1)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}

interface FindingProps {
  readonly run: RunSummary;
  /** All experts that differ. */
  readonly rows: readonly DifferenceRow[];
  /** Aligned tokens; null for whole texts. */
  readonly pairs: readonly TokenPair[] | null;
}

/** Most changed words with a sentence. */
const MAX_WORDS = 3;

/** The finding: how many experts differ; for each changed word, or each whole text, an expert that it activates more. */
function Finding({ run, rows, pairs }: FindingProps) {
  const count = `${formatPlural(rows.length, "expert")} of layer ${run.layer} ${rows.length === 1 ? "differs" : "differ"}.`;
  const whole = [-1, 1].flatMap((side) => rows.find(({ change }) => change * side > 0) ?? []);
  const told = whole.map((row) => ({ row, value: row.change }));
  const words = pairs === null ? [{ a: "First text", b: "second text", told }] : changedWords(pairs, rows);
  return (
    <div className="finding" role="status">
      <p>
        <b>{count}</b> {rows.length === 0 && "Both texts activate the same experts equally strongly."}
        {pairs !== null &&
          words.length > 0 &&
          "At each changed word, the largest difference × rarity, or a clear label with half of it:"}
      </p>
      {rows.length > 0 &&
        words.slice(0, MAX_WORDS).map(({ a, b, told: experts }, i) => (
          <p key={i}>
            <span className="mono down">{a || "nothing"}</span> → <span className="mono up">{b || "nothing"}</span>:{" "}
            {experts.map(({ row, value }, order) => (
              <Fragment key={row.expert}>
                {order > 0 && ", "}
                {value < 0 ? "less" : "more"}{" "}
                <FoundExpert info={row.info} expert={row.expert}>
                  {formatSigned(value, 1)}
                </FoundExpert>
              </Fragment>
            ))}
            .
          </p>
        ))}
    </div>
  );
}

/** Which tokens the map leaves out. */
function alignedNote(pairs: readonly TokenPair[]): string {
  const from = firstDifference(pairs);
  const rest = pairs.length - from;
  const first = from === 1 ? "The first token is" : `The first ${from} tokens are`;
  const same = from > 0 ? `${first} the same in both: no expert differs there. ` : "";
  return rest > MAX_COLUMNS
    ? `${same}${MAX_COLUMNS} of the other ${formatCount(rest)} tokens are shown; “Whole texts” includes all.`
    : same;
}

interface DifferenceViewProps extends RoutingState {
  readonly run: RunSummary;
  readonly first: RoutingResponse;
  readonly second: RoutingResponse;
}

export function DifferenceView({ run, first, second, params, setParams }: DifferenceViewProps) {
  const { align } = params;
  const pairs = useMemo(() => alignRoutings(first, second), [first, second]);
  const rows = useMemo(
    () =>
      differenceRows(pairs, { ...first.experts, ...second.experts }, align).filter(
        ({ largest }) => largest > ROUNDING_ERROR,
      ),
    [pairs, first, second, align],
  );
  const shown = rows.slice(0, params.rows);
  useShare(run.name, () => ({
    kind: "difference",
    text: params.prompt,
    second: params.second,
    k: effectiveK(run, params.k),
    ...sharedDifference(run.name, pairs.slice(0, MAX_COLUMNS), shown),
  }));
  const isAligned = align === "aligned";
  const size = ({ largest, change }: DifferenceRow) => (isAligned ? largest : Math.abs(change));
  const end = axisLimit(Math.max(0, ...rows.map(size)));
  return (
    <section className="difference-pane" aria-label="Difference between the two routings">
      <Finding run={run} rows={rows} pairs={isAligned ? pairs : null} />
      <div className="row pane-h">
        <RampLegend
          kind="diverging"
          low={`First text −${formatFixed(end, 1)}`}
          high={`+${formatFixed(end, 1)} second text`}
        />
        <p className="dim">
          {shown.length < rows.length ? `${shown.length} of ${formatCount(rows.length)}` : rows.length} experts, by{" "}
          <Term id="difference_score">{isAligned ? "largest difference" : "change"} × rarity</Term>; <ItalicNote />
        </p>
        <span className="grow" />
        <SegmentedControl
          label="Comparison"
          value={align}
          onChange={(next) => setParams({ align: next })}
          segments={segmentsOf({ aligned: "Aligned tokens", apart: "Whole texts" })}
        />
      </div>
      <DifferenceTable pairs={isAligned ? pairs : null} rows={shown} end={end} />
      <div className="row wrap heat-foot">
        <MoreRows hidden={rows.length - shown.length} setParams={setParams} />
        {isAligned && <p className="dim">{alignedNote(pairs)}</p>}
      </div>
    </section>
  );
}
