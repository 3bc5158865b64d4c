/** The difference between the routings of two texts: by aligned token as a map, or by whole text as lists. */

import "./difference.css";

import { useMemo } from "react";

import type { RoutingResponse, RunSummary } from "@/api/types";
import { ExpertLink } from "@/components/experts/expert-link";
import { useShare } from "@/components/layout/share";
import { effectiveK, KSlider } from "@/components/runs/k-slider";
import { methodName } from "@/components/runs/run-labels";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { Button } from "@/components/ui/button";
import { ScrollBox } from "@/components/ui/scroll-box";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { axisLimit } from "@/lib/scales/axis-limits";
import { divergingClass } from "@/lib/scales/colour-scale";
import { formatCount, formatFixed, formatPlural, formatSigned } from "@/lib/text/format";
import { columnText } from "@/pages/prompt/routing/heat-map/heat-rows";
import { MORE_ROWS, type RoutingState } from "@/pages/prompt/routing/routing-params";

import {
  alignRoutings,
  type DifferenceRow,
  differenceRows,
  firstDifference,
  largestDifference,
  sharedDifference,
  type TokenPair,
} from "./difference";

/** Longer maps are unreadable and slow to render. */
const MAX_COLUMNS = 160;

/** Smaller differences in activation are rounding errors. */
const ROUNDING_ERROR = 1e-3;

function ExpertName({ row: { expert, info } }: { readonly row: DifferenceRow }) {
  return (
    <ExpertLink
      expert={expert}
      label={info?.label ?? null}
      automatic={info?.automatic}
      topTokens={info?.top_tokens ?? []}
    />
  );
}

function PairHead({ pair }: { readonly pair: TokenPair }) {
  const [a, b] = [pair.a, pair.b].map((token) => (token === null ? null : columnText(token.text)));
  if (pair.a?.id === pair.b?.id) return <th scope="col">{a}</th>;
  return (
    <th scope="col" className="differs">
      <span className="down">{a ?? "–"}</span>
      <span className="up">{b ?? "–"}</span>
    </th>
  );
}

function Cell({ value, end }: { readonly value: number | undefined; readonly end: number }) {
  const digits = end >= 4 ? 1 : 2;
  if (value === undefined || Number(value.toFixed(digits)) === 0) return <td />;
  return <td className={`num ${divergingClass(value, end)}`}>{formatSigned(value, digits)}</td>;
}

interface MapProps {
  readonly pairs: readonly TokenPair[];
  readonly rows: readonly DifferenceRow[];
  readonly end: number;
}

function DifferenceMap({ pairs, rows, end }: MapProps) {
  const from = firstDifference(pairs);
  const shown = pairs.slice(from, from + MAX_COLUMNS);
  return (
    <ScrollBox className="difference-box" label="Difference by token">
      <table className="difference" aria-label="Differences, tokens by experts">
        <thead>
          <tr>
            <th scope="col">Expert</th>
            {shown.map((pair, i) => (
              <PairHead key={i} pair={pair} />
            ))}
            <th scope="col" className="sum" title="Sum of the absolute differences × rarity">
              Score
            </th>
            <th scope="col" className="sum" title="Summed activation in the second text minus that in the first">
              Change
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.expert}>
              <th scope="row">
                <ExpertName row={row} />
              </th>
              {shown.map((_, i) => (
                <Cell key={i} value={row.cells.get(from + i)} end={end} />
              ))}
              <td className="num sum">{formatFixed(row.totalChange * row.rarity, 1)}</td>
              <td className="num sum">{formatSigned(row.change, 2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}

interface DifferenceListProps {
  readonly title: string;
  readonly rows: readonly DifferenceRow[];
  readonly end: number;
}

function DifferenceList({ title, rows, end }: DifferenceListProps) {
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <table className="grid plain">
        <thead>
          <tr>
            <th>Expert</th>
            <th className="num">First</th>
            <th className="num">Second</th>
            <th className="num">Change</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.expert}>
              <td>
                <ExpertName row={row} />
              </td>
              <td className="num">{formatFixed(row.a)}</td>
              <td className="num">{formatFixed(row.b)}</td>
              <td className={`num ${divergingClass(row.change, end)}`}>{formatSigned(row.change, 2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length === 0 && <p className="dim">None</p>}
    </section>
  );
}

interface HeadProps extends RoutingState {
  readonly run: RunSummary;
  readonly rows: readonly DifferenceRow[];
  /** End of the colour scale. */
  readonly end: number;
}

/** How many experts differ, what the rows are ranked by, and the legend. */
function Head({ run, rows, end, params, setParams }: HeadProps) {
  return (
    <>
      <div className="pane-h">
        <h2>
          {formatCount(rows.length)} {rows.length === 1 ? "expert differs" : "experts differ"}
        </h2>
        <span className="note">
          {methodName(run.method)}, layer {run.layer} only; by{" "}
          {params.align === "aligned" ? "score: summed size of the differences" : "size of the change"} × rarity
        </span>
        <span className="grow" />
        <KSlider run={run} k={params.k} onChange={(k) => setParams({ k })} />
        <SegmentedControl
          label="Comparison"
          value={params.align}
          onChange={(next) => setParams({ align: next })}
          segments={[
            { value: "aligned", label: "Aligned tokens" },
            { value: "apart", label: "Whole texts" },
          ]}
        />
      </div>
      {rows.length === 0 && <p className="dim">Both texts activate the same experts equally strongly.</p>}
      <RampLegend
        kind="diverging"
        low={`First text −${formatFixed(end, 1)}`}
        high={`+${formatFixed(end, 1)} second text`}
      />
    </>
  );
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
        (row) => row.totalChange > ROUNDING_ERROR,
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
  const from = firstDifference(pairs);
  const largestChange = rows.reduce((largest, row) => Math.max(largest, Math.abs(row.change)), 0);
  const end = axisLimit(isAligned ? largestDifference(rows) : largestChange);
  return (
    <section className="difference-pane" aria-label="Difference between the two routings">
      <Head run={run} rows={rows} end={end} params={params} setParams={setParams} />
      {isAligned ? (
        <DifferenceMap pairs={pairs} rows={shown} end={end} />
      ) : (
        <div className="difference-lists">
          <DifferenceList title="Stronger in the second text" rows={shown.filter((row) => row.change > 0)} end={end} />
          <DifferenceList title="Stronger in the first text" rows={shown.filter((row) => row.change < 0)} end={end} />
        </div>
      )}
      <div className="heat-foot">
        <p className="dim">
          {isAligned &&
            from > 0 &&
            `Both texts begin with the same ${formatPlural(from, "token")}: no expert differs there. `}
          {isAligned &&
            pairs.length - from > MAX_COLUMNS &&
            `${MAX_COLUMNS} of the other ${formatCount(pairs.length - from)} tokens are shown; “Whole texts” includes all.`}
        </p>
        {rows.length > shown.length && (
          <Button size="small" onClick={() => setParams(({ rows }) => ({ rows: rows + MORE_ROWS }))}>
            {formatCount(rows.length - shown.length)} more experts
          </Button>
        )}
      </div>
    </section>
  );
}
