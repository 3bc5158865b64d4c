/** A table of the report: its cells are dots with 95 % intervals, or numbers alone if no values have a common axis. */

import { Fragment, type ReactNode } from "react";
import { Link } from "react-router";

import type { Cell as Value, Head, Row, Table } from "@/api/types";
import { LinkedText } from "@/components/terms/linked-text";
import { Term } from "@/components/terms/term";
import { ScrollBox } from "@/components/ui/scroll-box";
import { formatFixed } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";

type Axis = readonly [number, number];

/** Ends of an axis: those of all intervals. */
function axisOf(cells: readonly (Value | null | undefined)[]): Axis {
  const ends = cells.flatMap((cell) => (cell ? [cell.value, cell.low ?? cell.value, cell.high ?? cell.value] : []));
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const margin = high > low ? 0 : Math.abs(high) || 1;
  return [low - margin, high + margin];
}

/** Both ends with the digits and the unit of the cells. */
function axisText(cells: readonly (Value | null | undefined)[]): string {
  const text = cells.find((cell) => cell)?.text ?? "";
  const digits = /\.(\d+)/.exec(text)?.[1]?.length ?? 0;
  const isPercent = text.endsWith("%");
  const [low, high] = axisOf(cells).map((end) => formatFixed(isPercent ? 100 * end : end, digits));
  return `axis ${low} to ${high}${isPercent ? " %" : ""}`;
}

interface DotProps {
  readonly cell: Value;
  readonly axis: Axis;
  /** A value that is marked on the axis. */
  readonly reference: number | null;
}

function Dot({ cell: { value, low, high, is_best: isBest }, axis: [start, end], reference }: DotProps) {
  const percent = (at: number) => `${(100 * (at - start)) / (end - start)}%`;
  return (
    <svg className="dot" aria-hidden="true">
      {reference !== null && reference > start && reference < end && (
        <line className="reference" x1={percent(reference)} x2={percent(reference)} y1="0" y2="100%" />
      )}
      {low !== null && high !== null && <line x1={percent(low)} x2={percent(high)} y1="50%" y2="50%" />}
      <circle cx={percent(value)} cy="50%" r="4.5" className={isBest ? "best" : ""} />
    </svg>
  );
}

function Numbers({ cell: { text, interval, note, is_best: isBest } }: { readonly cell: Value }) {
  return (
    <>
      <span className={isBest ? "num best" : "num"}>
        {text}
        {isBest && <span className="sr">, best</span>}
      </span>
      {interval !== "" && <span className="dim num">{interval}</span>}
      {note !== "" && (
        <span className="dim">
          <LinkedText text={note} />
        </span>
      )}
    </>
  );
}

function Title({ head: { title, term, href } }: { readonly head: Head }) {
  if (href !== null) return <Link to={href}>{title}</Link>;
  return term === null ? title : <Term id={term as TermId}>{title}</Term>;
}

/** A description, which the glossary has if there is an entry, and on a line of its own which direction is better. */
function Detail({ head: { detail, term } }: { readonly head: Head }) {
  const [description, better] = detail.split("\n");
  return (
    <>
      <span className={term === null ? "" : "defined"}>{description}</span>
      {better !== undefined && <span className="better">{better}</span>}
    </>
  );
}

/** What a filled dot means, if there is one. */
function Legend({ rows }: Pick<Table, "rows">) {
  if (!rows.some(({ cells }) => cells.some((cell) => cell?.is_best))) return null;
  return (
    <p className="dots-legend">
      <span>
        <i className="best" /> best: its 95 % interval is apart from all others
      </span>
      <span>
        <i /> other values
      </span>
    </p>
  );
}

/** Widest, in pixels: dots that are far apart do not compare at a glance. */
const HEAD_WIDTH = 280;
const COLUMN_WIDTH = 420;

interface HeadsProps extends Pick<Table, "corner" | "columns"> {
  /** Ends of the axis of the table and of each column, if they have one. */
  readonly axisOfAll: string;
  readonly axes: readonly string[];
  readonly children: ReactNode;
}

function Heads({ corner, columns, axisOfAll, axes, children }: HeadsProps) {
  return (
    <thead>
      <tr>
        <th scope="col">
          {corner} <span className="dim">{axisOfAll}</span>
        </th>
        {columns.map((head, i) => (
          <th key={head.key} scope="col">
            <Title head={head} />
            <span className="dim">{head.detail}</span>
            <span className="dim">{axes[i]}</span>
          </th>
        ))}
        {children}
      </tr>
    </thead>
  );
}

function GroupHead({ group, span }: { readonly group: string; readonly span: number }) {
  return (
    <tr className="dots-group">
      <th scope="rowgroup" colSpan={span}>
        {group}
      </th>
    </tr>
  );
}

interface DotTableProps {
  readonly table: Table;
  readonly label: string;
}

export function DotTable({ table: { corner, columns, rows, axis, reference }, label }: DotTableProps) {
  const axisCells = {
    row: ({ cells }: Row) => cells,
    column: (_: unknown, i: number) => rows.map(({ cells }) => cells[i]),
    table: () => rows.flatMap(({ cells }) => cells),
  };
  const hasDots = axis !== null;
  const axes = columns.map((_, i) => (axis === "column" ? axisText(axisCells.column(null, i)) : ""));
  return (
    <ScrollBox className="dots-scroll" label={label}>
      {hasDots && <Legend rows={rows} />}
      <table
        className={hasDots ? "dots" : "dots numbers"}
        style={hasDots ? { maxWidth: HEAD_WIDTH + COLUMN_WIDTH * columns.length } : {}}
      >
        <Heads
          corner={corner}
          columns={columns}
          axisOfAll={axis === "table" ? axisText(axisCells.table()) : ""}
          axes={axes}
        >
          {!hasDots && <th scope="col">Description</th>}
        </Heads>
        <tbody>
          {rows.map((row, at) => (
            <Fragment key={row.key}>
              {row.group !== (rows[at - 1]?.group ?? "") && <GroupHead group={row.group} span={columns.length + 2} />}
              <tr>
                <th scope="row">
                  <Title head={row} />
                  {hasDots && (
                    <span className="dim">
                      <Detail head={row} />
                      {axis === "row" && <span>{axisText(row.cells)}</span>}
                    </span>
                  )}
                </th>
                {row.cells.map((cell, i) => (
                  <td key={columns[i]?.key} data-label={[columns[i]?.title, axes[i]].filter(Boolean).join(", ")}>
                    {cell === null && <span className="dim">–</span>}
                    {cell !== null && hasDots && (
                      <Dot cell={cell} axis={axisOf(axisCells[axis](row, i))} reference={reference} />
                    )}
                    {cell !== null && <Numbers cell={cell} />}
                  </td>
                ))}
                {!hasDots && (
                  <td className="ink2">
                    <Detail head={row} />
                  </td>
                )}
              </tr>
            </Fragment>
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}
