/** Two texts and the difference of their routing: by aligned tokens as a map, or apart as what gained and what lost. */

import "./difference.css";

import { useMemo } from "react";
import { Link } from "react-router";

import type { RoutingResponse } from "@/api/types";
import { Button } from "@/components/button";
import { ExpertLabel } from "@/components/expert-ref";
import { usePageLinks } from "@/components/links";
import { Segmented } from "@/components/segmented";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { PlusButton } from "@/components/tray/plus-button";
import { divergingClass } from "@/lib/colour-scale";
import { formatCount, formatFixed, formatSigned } from "@/lib/format";
import { niceEnd } from "@/lib/nice-end";
import type { SetParams, Values } from "@/url-state";

import { columnText } from "./columns";
import { type DifferenceRow, differenceRows, largestDifference, pairsOf, type TokenPair } from "./difference";
import { MORE_ROWS, type ROUTING_PARAMS } from "./routing-params";

/** Beyond this a map is no longer read column by column, and the browser has too much to draw. */
const MOST_COLUMNS = 160;

/** Coefficients that differ by less are the same, but for rounding. */
const SAME = 1e-3;

function Who({ row }: { readonly row: DifferenceRow }) {
  const links = usePageLinks();
  return (
    <div className="who">
      <span className="mono id">{row.expert}</span>
      <Link className="n" to={links.expert(row.expert)}>
        <ExpertLabel label={row.info?.label ?? null} topTokens={row.info?.top_tokens ?? []} />
        {row.info?.label == null && <span className="sr">Expert {row.expert}</span>}
      </Link>
      <PlusButton expert={row.expert} />
    </div>
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
  const shown = pairs.slice(0, MOST_COLUMNS);
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a box that scrolls must be reachable by key
    <div className="difference-box" tabIndex={0} role="region" aria-label="Difference by token">
      <table className="difference" aria-label="Differences, tokens by experts">
        <thead>
          <tr>
            <th scope="col">Expert</th>
            {shown.map((pair, i) => (
              <PairHead key={i} pair={pair} />
            ))}
            <th scope="col" className="num">
              Change
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.expert}>
              <th scope="row">
                <Who row={row} />
              </th>
              {shown.map((_, i) => (
                <Cell key={i} value={row.cells.get(i)} end={end} />
              ))}
              <td className="num sum">{formatSigned(row.change, 2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface SideProps {
  readonly title: string;
  readonly rows: readonly DifferenceRow[];
  readonly end: number;
}

function Side({ title, rows, end }: SideProps) {
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
                <Who row={row} />
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

interface DifferenceViewProps {
  readonly first: RoutingResponse;
  readonly second: RoutingResponse;
  readonly params: Values<typeof ROUTING_PARAMS>;
  readonly setParams: SetParams<typeof ROUTING_PARAMS>;
}

export function DifferenceView({ first, second, params, setParams }: DifferenceViewProps) {
  const { align } = params;
  const pairs = useMemo(() => pairsOf(first, second), [first, second]);
  const rows = useMemo(
    () => differenceRows(pairs, { ...first.experts, ...second.experts }, align).filter((row) => row.moved > SAME),
    [pairs, first, second, align],
  );
  const shown = rows.slice(0, params.rows);
  const isAligned = align === "aligned";
  const sums = rows.reduce((most, row) => Math.max(most, Math.abs(row.change)), 0);
  const end = niceEnd(isAligned ? largestDifference(rows) : sums);
  return (
    <section className="difference-pane" aria-label="Difference of the two routings">
      <div className="pane-h">
        <h2>Second text against the first</h2>
        <span className="note">
          {formatCount(rows.length)} {rows.length === 1 ? "expert differs" : "experts differ"}
        </span>
        <span className="grow" />
        <Segmented
          label="Tokens"
          value={align}
          onChange={(next) => setParams({ align: next })}
          segments={[
            { value: "aligned", label: "Aligned" },
            { value: "apart", label: "Each text as a whole" },
          ]}
        />
      </div>
      {rows.length === 0 && <p className="dim">Both texts go through the same experts, equally strongly.</p>}
      {isAligned ? (
        <DifferenceMap pairs={pairs} rows={shown} end={end} />
      ) : (
        <div className="gained-lost">
          <Side title="Gained in the second" rows={shown.filter((row) => row.change > 0)} end={end} />
          <Side title="Lost from the first" rows={shown.filter((row) => row.change < 0)} end={end} />
        </div>
      )}
      <div className="heat-foot">
        <RampLegend kind="diverging" low={`Coefficient −${formatFixed(end, 1)}`} high={`+${formatFixed(end, 1)}`} />
        <span className="grow" />
        {isAligned && pairs.length > MOST_COLUMNS && (
          <span className="dim">
            The first {MOST_COLUMNS} of {formatCount(pairs.length)} tokens; each text as a whole counts all.
          </span>
        )}
        {rows.length > shown.length && (
          <Button size="small" onClick={() => setParams({ rows: params.rows + MORE_ROWS })}>
            {formatCount(rows.length - shown.length)} more experts
          </Button>
        )}
      </div>
    </section>
  );
}
