/** A table of the report: its cells are dots with 95 % intervals, or numbers alone if no values have a common axis. */

import { Fragment } from "react";
import { Link } from "react-router";

import type { Cell as Value, Head, Table } from "@/api/types";
import { LinkedText } from "@/components/terms/linked-text";
import { Term } from "@/components/terms/term";
import { ScrollBox } from "@/components/ui/scroll-box";
import { formatFixed } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";

type Cells = readonly (Value | null | undefined)[];
type Axis = readonly [number, number];

/** Ends of an axis: those of all intervals, or of a single value zero and the next 1, 2 or 5 of its power of ten. */
function axisOf(cells: Cells): Axis {
  const ends = cells.flatMap((cell) => (cell ? [cell.value, cell.low ?? cell.value, cell.high ?? cell.value] : []));
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  if (cells.length === 1 && high > 0) {
    const power = 10 ** Math.floor(Math.log10(high));
    return [Math.min(0, low), power * ([1, 2, 5].find((end) => end * power >= high) ?? 10)];
  }
  const margin = high > low ? 0 : Math.abs(high) || 1;
  return [low - margin, high + margin];
}

/** Both ends with the digits and the unit of the cells. */
function axisText(cells: Cells): string {
  const text = cells.find((cell) => cell)?.text ?? "";
  const digits = /\.(\d+)/.exec(text)?.[1]?.length ?? 0;
  const isPercent = text.endsWith("%");
  const [low, high] = axisOf(cells)
    .map((end) => formatFixed(isPercent ? 100 * end : end, digits))
    .map((end) => (cells.length === 1 ? end.replace(/\.0+$|(?<=\.\d*[1-9])0+$/, "") : end));
  return `axis ${low} to ${high}${isPercent ? " %" : ""}`;
}

interface DotProps {
  readonly cell: Value;
  readonly axis: Axis;
  /** A value that is marked on the axis. */
  readonly reference: number | null;
}

function Dot({ cell: { value, low, high }, axis: [start, end], reference }: DotProps) {
  const percent = (at: number) => `${(100 * (at - start)) / (end - start)}%`;
  return (
    <svg className="dot" aria-hidden="true">
      {reference !== null && reference > start && reference < end && (
        <line className="reference" x1={percent(reference)} x2={percent(reference)} y1="0" y2="100%" />
      )}
      {low !== null && high !== null && <line x1={percent(low)} x2={percent(high)} y1="50%" y2="50%" />}
      <circle cx={percent(value)} cy="50%" r="4.5" />
    </svg>
  );
}

function Title({ head: { title, term, href } }: { readonly head: Head }) {
  if (href !== null) return <Link to={href}>{title}</Link>;
  return term === null ? title : <Term id={term as TermId}>{title}</Term>;
}

/** The title of a metric and an arrow in the direction that is better, which the second line of the detail names. */
function MetricTitle({ head }: { readonly head: Head }) {
  const [, better] = head.detail.split("\n");
  return (
    <>
      <Title head={head} />
      {better !== undefined && (
        <span className="dim" title={better}>
          {` ${better[0] ?? ""}`}
          <span className="sr">{better.slice(1)}</span>
        </span>
      )}
    </>
  );
}

/** The lines of one metric: what stands on each, and the values. */
interface Group {
  readonly head: Head;
  readonly lanes: readonly Head[];
  readonly cells: Cells;
}

/** What is compared is below one another: the columns of each row, or the rows of each column if that is an axis. */
function groupsOf({ columns, rows, axis }: Table): readonly Group[] {
  if (axis !== "column") return rows.map((row) => ({ head: row, lanes: columns, cells: row.cells }));
  return columns.map((head, i) => ({ head, lanes: rows, cells: rows.map(({ cells }) => cells[i]) }));
}

/** The method of each run, or its name if another run has the same method. */
function shortNames(lanes: readonly Head[]): readonly string[] {
  const methods = lanes.map(({ detail }) => /^(.*), K /.exec(detail)?.[1] ?? "");
  return lanes.map(({ title }, i) => {
    const method = methods[i];
    return method && methods.filter((other) => other === method).length === 1 ? method : title;
  });
}

interface LaneProps {
  readonly lane: Head;
  readonly name: string;
  readonly cell: Value | null;
  readonly axis: Axis;
  readonly reference: number | null;
}

function Lane({ lane, name, cell, axis, reference }: LaneProps) {
  const best = cell?.is_best === true ? "best" : "";
  return (
    <>
      <th scope="row" className={best}>
        <Title head={{ ...lane, title: name }} />
      </th>
      <td>{cell !== null && <Dot cell={cell} axis={axis} reference={reference} />}</td>
      <td className={`num ${best}`}>
        {cell?.text ?? "–"}
        {best !== "" && <span className="sr">, best</span>}
      </td>
      <td className="dim num">
        {cell?.interval}
        {cell?.note && <LinkedText text={`${cell.interval && ", "}${cell.note}`} />}
      </td>
    </>
  );
}

const HEADS = { metric: "Metric", lane: "Compared", track: "Axis", value: "Value", interval: "95 % interval" };

/** Dots with intervals below one another, on one axis per metric or on one for all. */
function Tracks({ table }: { readonly table: Table }) {
  const groups = groupsOf(table);
  const all = table.axis === "table" ? table.rows.flatMap(({ cells }) => cells) : null;
  return (
    <table className={table.axis === "row" ? "tracks of-runs" : "tracks"}>
      <colgroup>
        {Object.keys(HEADS).map((name) => (
          <col key={name} className={name} />
        ))}
      </colgroup>
      <thead className="sr">
        <tr>
          {Object.values(HEADS).map((name) => (
            <th key={name} scope="col">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      {groups.map(({ head, lanes, cells }) => {
        const names = shortNames(lanes);
        return (
          <tbody key={head.key}>
            {lanes.map((lane, i) => (
              <tr key={lane.key}>
                {i === 0 && (
                  <th scope="rowgroup" rowSpan={lanes.length}>
                    <MetricTitle head={head} />
                    <span className="dim">
                      {head.term === null && <span>{head.detail.split("\n")[0]}</span>}
                      <span>{axisText(all ?? cells)}</span>
                    </span>
                  </th>
                )}
                <Lane
                  lane={lane}
                  name={names[i] ?? ""}
                  cell={cells[i] ?? null}
                  axis={axisOf(all ?? cells)}
                  reference={table.reference}
                />
              </tr>
            ))}
          </tbody>
        );
      })}
    </table>
  );
}

/** What the lines of a track are, and what bold means. */
function Legend({ columns, rows }: Pick<Table, "columns" | "rows">) {
  const described = columns.filter(({ detail }) => detail !== "");
  return (
    <ul className="tracks-legend">
      {described.map((head) => (
        <li key={head.key}>
          <Title head={head} /> <span className="dim">{head.detail}</span>
        </li>
      ))}
      {rows.some(({ cells }) => cells.some((cell) => cell?.is_best)) && (
        <li className="dim">Bold: best, its 95 % interval is apart from all others.</li>
      )}
    </ul>
  );
}

/** Numbers without a common axis, each with its description. */
function Numbers({ table: { corner, columns, rows } }: { readonly table: Table }) {
  return (
    <table className="numbers">
      <thead>
        <tr>
          <th scope="col">{corner}</th>
          {columns.map((head) => (
            <th key={head.key} scope="col">
              <Title head={head} />
              <span className="dim">{head.detail}</span>
            </th>
          ))}
          <th scope="col">Description</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row, at) => (
          <Fragment key={row.key}>
            {row.group !== (rows[at - 1]?.group ?? "") && (
              <tr className="numbers-group">
                <th scope="rowgroup" colSpan={columns.length + 2}>
                  {row.group}
                </th>
              </tr>
            )}
            <tr>
              <th scope="row">
                <Title head={row} />
              </th>
              {row.cells.map((cell, i) => (
                <td key={columns[i]?.key} data-label={columns[i]?.title}>
                  <span className="num">{cell?.text ?? "–"}</span>{" "}
                  {cell !== null && (
                    <span className="dim num">
                      {cell.interval} <LinkedText text={cell.note} />
                    </span>
                  )}
                </td>
              ))}
              <td className="ink2">{row.detail}</td>
            </tr>
          </Fragment>
        ))}
      </tbody>
    </table>
  );
}

export function DotTable({ table, label }: { readonly table: Table; readonly label: string }) {
  return (
    <ScrollBox className="dots-scroll" label={label}>
      {table.axis === null ? (
        <Numbers table={table} />
      ) : (
        <>
          <Legend columns={table.columns} rows={table.rows} />
          <Tracks table={table} />
        </>
      )}
    </ScrollBox>
  );
}
