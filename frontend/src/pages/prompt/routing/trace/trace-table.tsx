/** Layers as rows, the last one on top, and tokens as columns; the cells that a chosen cell feeds are marked. */

import { useQuery } from "@tanstack/react-query";
import { type CSSProperties, type RefObject, useEffect, useMemo, useRef, useState } from "react";

import { directEffectsQuery } from "@/api/queries";
import { hideTip, showTip } from "@/components/tokens/tip-layer";
import { Promoted } from "@/components/tokens/token-chip";
import { ScrollBox } from "@/components/ui/pane-head";
import { useWidth } from "@/hooks/use-size";
import { sequentialStep } from "@/lib/scales/colour-scale";
import { formatFixed, formatPlural, formatShare, formatSigned } from "@/lib/text/format";
import { type Edge, Edges } from "@/pages/prompt/edges";
import { ExpertName } from "@/pages/prompt/expert-name";
import { CellTip, ColumnTip, heatEvents } from "@/pages/prompt/routing/heat-map/heat-map";
import { type Column, columnText, type HeatRow, type Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";

import {
  CELL,
  cellKey,
  cellWidth,
  type Fed,
  percentOf,
  type Raisers,
  type TracedCell,
  type TraceLayer,
} from "./trace-rows";

/** Milliseconds on the cell before the effects are requested, so that a passing pointer requests nothing. */
const REST_MS = 250;
const MAX_WRITTEN = 3;

interface TracedTipProps {
  readonly run: string;
  readonly prompt: string;
  readonly column: Column;
  readonly row: HeatRow;
}

/** Tooltip of a cell: the expert, its activation, and what it writes on this token. */
function TracedTip({ run, prompt, column, row }: TracedTipProps) {
  const [isAtRest, setAtRest] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => setAtRest(true), REST_MS);
    return () => window.clearTimeout(timer);
  }, []);
  const { data } = useQuery(directEffectsQuery(run, prompt, isAtRest ? column.position : null));
  const effect = data?.experts.find(({ expert }) => expert === row.expert);
  return (
    <>
      <CellTip row={row} column={column} />
      <div className="row wrap">
        <span className="dim">Writes</span>
        {effect === undefined ? "…" : <Promoted tokens={effect.promoted.slice(0, MAX_WRITTEN)} />}
      </div>
    </>
  );
}

/** A change of a logit, in the colour of its sign. */
export function Signed({ value }: { readonly value: number }) {
  const text = formatSigned(value, 2);
  return <b className={`num ${text.startsWith("+") ? "up" : text.startsWith("−") ? "down" : ""}`}>{text}</b>;
}

interface TraceTableProps {
  readonly prompt: string;
  readonly columns: readonly Column[];
  readonly layers: readonly TraceLayer[];
  readonly predicted: Predicted;
  /** Position of the token of the panel, to which the table scrolls. */
  readonly current: number;
  readonly chosen: TracedCell | null;
  /** What the chosen cell clearly feeds; undefined until it is measured. */
  readonly fed: readonly Fed[] | undefined;
  /** Effects of the current token's experts on the next one. */
  readonly raisers: Raisers;
  readonly onChoose: (position: number, cell: TracedCell | null) => void;
}

/** That of the strongest expert of a layer on the current token. */
const effectOf = (raisers: Raisers, { run, tokens }: TraceLayer, position: number) =>
  raisers.get(run)?.experts.find(({ row }) => row === tokens.get(position)?.[0]?.row)?.effect;

interface CellProps extends Pick<TraceTableProps, "chosen" | "fed"> {
  /** What its expert adds to the logit of the next token, if that is measured. */
  readonly effect: number | undefined;
  readonly layer: TraceLayer;
  readonly position: number;
}

function Cell({ layer, position, chosen, fed, effect }: CellProps) {
  const [strongest] = layer.tokens.get(position) ?? [];
  if (strongest === undefined) return <span className="dim">–</span>;
  const { row, cell } = strongest;
  const isChosen = chosen?.run === layer.run && chosen.position === position && chosen.expert === row.expert;
  const amount = fed?.find((one) => one.run === layer.run && one.position === position);
  const sign = amount === undefined ? undefined : amount.change > 0 ? "up" : "down";
  const step = Math.max(1, sequentialStep(cell.activation, layer.end));
  return (
    <button
      type="button"
      className="expert-box"
      data-position={position}
      data-run={layer.run}
      data-expert={row.expert}
      data-node={cellKey({ run: layer.run, position })}
      data-fed={sign}
      aria-pressed={isChosen}
      style={{ "--fill": `${(100 * cell.activation) / layer.end}%`, "--colour": `var(--seq-${step})` } as CSSProperties}
    >
      <span className="name">
        <span className="clamp">
          <ExpertName info={row.info} />
        </span>
      </span>
      <em className="num">{formatFixed(cell.activation, 1)}</em>
      <small className="mono">{row.expert}</small>
      {effect !== undefined && (
        <span className="tab out">
          <span className="sr">effect on the next token </span>
          <Signed value={effect} />
        </span>
      )}
      {amount !== undefined && (
        <b className={`tab in num ${sign}`}>{(sign === "up" ? "+" : "−") + percentOf(amount.share)}</b>
      )}
    </button>
  );
}

function useEvents({ prompt, columns, layers, predicted, onChoose }: TraceTableProps) {
  return useMemo(() => {
    return heatEvents({
      onEnter: ({ position }, element) => {
        const layer = layers.find(({ run }) => run === element.dataset.run);
        const row = layer?.tokens.get(position)?.[0]?.row;
        const column = columns.find((one) => one.position === position);
        if (column === undefined) return;
        const index = element.closest<HTMLTableCellElement>("td, th")?.cellIndex ?? 0;
        const lowest = [...(element.closest("table")?.tBodies[0]?.rows ?? [])].at(-1)?.cells[index];
        showTip(
          element,
          layer === undefined || row === undefined ? (
            <ColumnTip column={column} predicted={predicted} />
          ) : (
            <TracedTip run={layer.run} prompt={prompt} column={column} row={row} />
          ),
          "hover",
          lowest, // below it, if there is room: over no cell of the table
        );
      },
      onLeave: hideTip,
      onLock: ({ position, expert }, { dataset: { run } }) => {
        hideTip(); // it would cover the curves
        onChoose(position, expert === null || run === undefined ? null : { run, position, expert });
      },
    });
  }, [prompt, columns, layers, onChoose, predicted]);
}

/** Width of a cell in a box, which scrolls as far as the current token needs. */
function useCellWidth(box: RefObject<HTMLElement | null>, { columns, current }: TraceTableProps): number {
  const width = useWidth(box);
  useEffect(() => {
    if (width === 0) return;
    box.current?.querySelector("thead .lk")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [box, current, width]);
  return cellWidth(width, columns.length);
}

/** A curve from the chosen cell to each that it feeds. */
function fedEdges(chosen: TracedCell | null, fed: readonly Fed[] = []): readonly Edge[] {
  const largest = Math.max(1e-9, ...fed.map(({ share }) => Math.abs(share)));
  const from = chosen === null ? "" : cellKey(chosen);
  return fed.map((cell) => ({
    ...{ from, to: cellKey(cell), isUp: cell.change > 0, isNear: true },
    size: Math.abs(cell.share) / largest,
  }));
}

/** The tokens, and the next token after each. */
function Head({ columns, layers, predicted, current }: TraceTableProps) {
  return (
    <thead>
      <tr>
        <td>Layer</td>
        {columns.map(({ position, token }) => (
          <th key={position} scope="col" className={position === current ? "lk" : undefined}>
            <button
              type="button"
              className="block cut tokb"
              data-position={position}
              aria-pressed={position === current}
            >
              {columnText(token.text)}
            </button>
          </th>
        ))}
      </tr>
      {(["original", "replaced"] as const).map((by) => (
        <tr key={by} className="traced-next">
          <th scope="row">{by === "original" ? "Next token" : `with ${formatPlural(layers.length, "layer")}`}</th>
          {columns.map(({ position }) => {
            const [best] = predicted?.[position]?.predictions.toSorted((a, b) => b[by] - a[by]) ?? [];
            return (
              <td key={position} title={best?.text}>
                {best === undefined ? (
                  "…"
                ) : (
                  <>
                    <span className="block cut mono">{columnText(best.text)}</span>
                    <span className="dim num">{formatShare(best[by], 1)} %</span>
                  </>
                )}
              </td>
            );
          })}
        </tr>
      ))}
    </thead>
  );
}

export function TraceTable(props: TraceTableProps) {
  const { columns, layers, chosen, fed, raisers, current } = props;
  const events = useEvents(props);
  const box = useRef<HTMLDivElement>(null);
  const width = CELL.head + columns.length * (useCellWidth(box, props) + CELL.gap);
  const edges = useMemo(() => fedEdges(chosen, fed), [chosen, fed]);
  return (
    <ScrollBox className="layer-box trace-box" label="Layers of the prompt" ref={box}>
      <div className="layer-table">
        <table className="trace" aria-label="Strongest expert, layers by tokens" style={{ width }} {...events}>
          <Head {...props} />
          <tbody>
            {layers.map((layer) => (
              <tr key={layer.run}>
                <th scope="row" title={layer.run}>
                  <span className="sr">Layer </span>
                  {layer.layer}
                </th>
                {columns.map(({ position }) => (
                  <td key={position}>
                    <Cell
                      {...{ layer, position, chosen, fed }}
                      effect={position === current ? effectOf(raisers, layer, position) : undefined}
                    />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
        <Edges edges={edges} gap={CELL.gap} />
      </div>
    </ScrollBox>
  );
}
