/** A table of the report: its cells are dots with 95 % intervals, or numbers alone if no values have a common axis. */

import type { ReactNode } from "react";
import { Link } from "react-router";

import type { Cell as Value, Head, Table, TermId } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { Described, LinkedText, Term } from "@/components/terms/term";
import { ScrollBox } from "@/components/ui/pane-head";
import { formatFixed } from "@/lib/text/format";

type Cells = readonly (Value | null | undefined)[];
type Axis = readonly [number, number];

/** Steps of an axis per power of ten. */
const STEPS = [1, 2, 5, 10];
/** Room between the intervals and the ends of their axis, as a share of their range. */
const PADDING = 0.08;

/** Round ends with room around all intervals and `more`; of a single value or of shares near zero, from zero. */
export function axisOf(cells: Cells, ...more: readonly number[]): Axis {
  const all = cells.flatMap((cell) => (cell ? [cell.value, cell.low ?? cell.value, cell.high ?? cell.value] : []));
  const ends = [...all, ...more];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const range = high - low || Math.abs(high) || 1;
  const start = cells.length === 1 ? Math.min(0, low) : low - PADDING * range;
  const end = cells.length === 1 ? Math.max(0, high) : high + PADDING * range;
  const power = 10 ** Math.floor(Math.log10((end - start) / 4 || 1));
  const step = power * (STEPS.find((each) => 4 * each * power >= end - start) ?? 10);
  return [
    Number((Math.floor(start / step) * step).toPrecision(6)),
    Number((Math.ceil(end / step) * step).toPrecision(6)),
  ];
}

/** Both ends, with as many digits as they need, and the unit of the cells. */
function axisEnds(cells: Cells): readonly string[] {
  const isPercent = cells.find((cell) => cell)?.text.includes("%") === true;
  return axisOf(cells)
    .map((end) =>
      formatFixed(isPercent ? 100 * end : end, 6)
        .replace(/\.?0+$/, "")
        .replace(/^−?0?$/, "0"),
    )
    .map((end, i) => (isPercent && i === 1 ? `${end} %` : end));
}

interface DotProps {
  readonly cell: Value;
  readonly axis: Axis;
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

/**
 * A title, described on hover and focus, and an arrow in the direction that is better, which the second line of the
 * detail names.
 */
export function Title({ head: { title, term, href, detail } }: { readonly head: Head }) {
  if (href !== null) return <Link to={href}>{title}</Link>;
  const [description = "", better = ""] = detail.split("\n");
  const name = better === "" ? title : `${title}\u00a0${better.slice(0, 1)}`;
  if (description !== "")
    return (
      <Described {...{ description: `${description}${better && `; ${better.slice(2)}`}`, term }}>{name}</Described>
    );
  return term === null ? name : <Term id={term as TermId}>{name}</Term>;
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

interface LaneProps extends Omit<DotProps, "cell"> {
  /** Null if it is the only one, so that its name says nothing. */
  readonly name: ReactNode | null;
  readonly cell: Value | null;
  /** What the ends of the axis are; empty on the lines below the first. */
  readonly ends: readonly string[];
}

function Lane({ name, cell, axis, ends: [low, high], reference }: LaneProps) {
  const best = cell?.is_best === true ? "best" : "";
  return (
    <>
      {name !== null && (
        <th scope="row" className={best}>
          {name}
        </th>
      )}
      <td>
        <div className="track">
          <span>{low}</span>
          {cell === null ? <span /> : <Dot cell={cell} axis={axis} reference={reference} />}
          <span>{high}</span>
        </div>
      </td>
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

const HEADS = { metric: "Metric", lane: "Compared", dots: "Axis", value: "Value", interval: "95 % interval" };

/** Dots with intervals below one another, on one axis per metric or on one for all. */
function Tracks({ table }: { readonly table: Table }) {
  const { name: run } = useCurrentRun();
  const own = pageLinks(null).run(run ?? "");
  const groups = groupsOf(table);
  const all = table.axis === "table" ? table.rows.flatMap(({ cells }) => cells) : null;
  const isSingle = groups.every(({ lanes }) => lanes.length === 1);
  const heads = Object.entries(HEADS).filter(([key]) => key !== "lane" || !isSingle);
  return (
    <table className={`tracks ${table.axis === "row" ? "of-runs" : ""} ${isSingle ? "single" : ""}`}>
      <colgroup>
        {heads.map(([key]) => (
          <col key={key} className={key} />
        ))}
      </colgroup>
      <thead className="sr">
        <tr>
          {heads.map(([key, name]) => (
            <th key={key} scope="col">
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
              <tr key={lane.key} data-own={lane.href === own || undefined}>
                {i === 0 && (
                  <th scope="rowgroup" rowSpan={lanes.length}>
                    <Title head={head} />
                  </th>
                )}
                <Lane
                  name={isSingle ? null : <Title head={{ ...lane, title: names[i] ?? "", detail: "" }} />}
                  cell={cells[i] ?? null}
                  axis={axisOf(all ?? cells)}
                  ends={i === 0 ? axisEnds(all ?? cells) : []}
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

/** What the lines of a track are. */
function Legend({ columns }: Pick<Table, "columns">) {
  const described = columns.filter(({ detail }) => detail !== "");
  return (
    <ul className="wrap tracks-legend">
      {described.map((head) => (
        <li key={head.key}>
          <Title head={{ ...head, detail: "" }} /> <span className="dim">{head.detail}</span>
        </li>
      ))}
    </ul>
  );
}

const OUTCOMES = { win: "won", tie: "tied", lose: "lost" } as const;

/** Numbers without a common axis, in groups that stand beside one another if each metric has a single one. */
function Numbers({ table: { corner, columns, rows } }: { readonly table: Table }) {
  const isSingle = columns.length === 1;
  const groups = [...new Set(rows.map(({ group }) => group))];
  return (
    <div className={isSingle ? "numbers single" : "numbers"}>
      {groups.map((group, at) => (
        <table key={group}>
          <thead className={isSingle || at > 0 ? "sr" : undefined}>
            <tr>
              <th scope="col">{corner}</th>
              {columns.map((head) => (
                <th key={head.key} scope="col">
                  <Title head={{ ...head, detail: "" }} />
                  <span className="dim block">{head.detail}</span>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {group !== "" && (
              <tr className="numbers-group">
                <th scope="rowgroup" colSpan={columns.length + (isSingle ? 2 : 1)}>
                  {group}
                </th>
              </tr>
            )}
            {rows
              .filter((row) => row.group === group)
              .map((row) => (
                <tr key={row.key}>
                  <th scope="row">
                    <Title head={row} />
                  </th>
                  {isSingle && <td className="dim">{row.cells[0]?.note}</td>}
                  {row.cells.map((cell, i) => (
                    <td key={columns[i]?.key} data-label={isSingle ? undefined : columns[i]?.title}>
                      {cell?.outcome != null && (
                        <>
                          <span className={`outcome ${cell.outcome}`}>{OUTCOMES[cell.outcome]}</span>
                          <Dot cell={cell} axis={axisOf(row.cells, 0)} reference={0} />
                        </>
                      )}
                      <span className="num">{cell?.text ?? "–"}</span>{" "}
                      {cell !== null && (
                        <span className="dim num">
                          {cell.interval} {!isSingle && <LinkedText text={cell.note} />}
                        </span>
                      )}
                    </td>
                  ))}
                </tr>
              ))}
          </tbody>
        </table>
      ))}
    </div>
  );
}

export function DotTable({ table, label }: { readonly table: Table; readonly label: string }) {
  return (
    <ScrollBox className="dots-scroll" label={label}>
      {table.axis === null ? (
        <Numbers table={table} />
      ) : (
        <>
          <Legend columns={table.columns} />
          <Tracks table={table} />
        </>
      )}
    </ScrollBox>
  );
}
