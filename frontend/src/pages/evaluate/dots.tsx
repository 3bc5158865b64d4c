/** A table whose cells are dots with 95 % intervals, on an axis per row or column or for the whole table. */

import "./dots.css";

import { Fragment, type ReactNode } from "react";

export interface Dot {
  readonly value: number;
  /** Null if the value has no interval. */
  readonly low: number | null;
  readonly high: number | null;
  readonly isBest?: boolean;
}

interface DotRow {
  readonly key: string;
  readonly head: ReactNode;
  readonly format: (value: number, column: number) => string;
  /** One per column; null if it was not measured. */
  readonly dots: readonly (Dot | null)[];
  /** Lines below a column's dot. */
  readonly notes?: readonly ReactNode[];
}

type Axis = readonly [number, number];

/** Ends of an axis: all intervals, with a margin so that no dot is cut off. */
function axisOf(dots: readonly (Dot | null | undefined)[]): Axis {
  const ends = dots.flatMap((dot) => (dot ? [dot.value, dot.low ?? dot.value, dot.high ?? dot.value] : []));
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const margin = 0.08 * (high - low || Math.abs(high) || 1);
  return [low - margin, high + margin];
}

interface CellProps {
  readonly dot: Dot | null;
  readonly format: (value: number) => string;
  readonly axis: Axis;
  /** A value that is marked on the axis. */
  readonly reference: number | undefined;
}

function Cell({ dot, format, axis: [start, end], reference }: CellProps) {
  if (dot === null) return <span className="dim">not measured</span>;
  const { value, low, high, isBest = false } = dot;
  const percent = (at: number) => `${(100 * (at - start)) / (end - start)}%`;
  return (
    <>
      <svg className="dot" aria-hidden="true">
        {reference !== undefined && reference > start && reference < end && (
          <line className="reference" x1={percent(reference)} x2={percent(reference)} y1="0" y2="100%" />
        )}
        {low !== null && high !== null && <line x1={percent(low)} x2={percent(high)} y1="50%" y2="50%" />}
        <circle cx={percent(value)} cy="50%" r="4.5" className={isBest ? "best" : ""} />
      </svg>
      <span className={isBest ? "num best" : "num"}>
        {format(value)}
        {isBest && <span className="sr">, best</span>}
      </span>
      {low !== null && high !== null && (
        <span className="dim num">
          {format(low)} to {format(high)}
        </span>
      )}
    </>
  );
}

/** Widest, in pixels: dots that are far apart do not compare at a glance. */
const HEAD_WIDTH = 280;
const COLUMN_WIDTH = 420;

interface DotTableProps {
  readonly label: string;
  /** Heading of the rows. */
  readonly corner: ReactNode;
  readonly columns: readonly { readonly key: string; readonly name: string; readonly head: ReactNode }[];
  readonly rows: readonly DotRow[];
  readonly axis: "row" | "column" | "table";
  readonly reference?: number;
}

export function DotTable({ label, corner, columns, rows, axis, reference }: DotTableProps) {
  const axisDots = {
    row: ({ dots }: DotRow) => dots,
    column: (_: DotRow, i: number) => rows.map(({ dots }) => dots[i]),
    table: () => rows.flatMap(({ dots }) => dots),
  };
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="dots-scroll" tabIndex={0} role="region" aria-label={label}>
      <table className="dots" style={{ maxWidth: HEAD_WIDTH + COLUMN_WIDTH * columns.length }}>
        <thead>
          <tr>
            <th scope="col">{corner}</th>
            {columns.map(({ key, head }) => (
              <th key={key} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.key}>
              <th scope="row">{row.head}</th>
              {row.dots.map((dot, i) => (
                <td key={columns[i]?.key} data-label={columns[i]?.name}>
                  <Cell
                    dot={dot}
                    format={(value) => row.format(value, i)}
                    axis={axisOf(axisDots[axis](row, i))}
                    reference={reference}
                  />
                  <Fragment>{row.notes?.[i]}</Fragment>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
