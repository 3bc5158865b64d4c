/** Layers as rows, the last one on top, and tokens as columns; the cells that a chosen cell feeds are marked. */

import { useQueries, useQuery } from "@tanstack/react-query";
import { type CSSProperties, type RefObject, useEffect, useMemo, useRef, useState } from "react";

import { directEffectsQuery } from "@/api/queries";
import type { PredictedToken } from "@/api/types";
import { Term } from "@/components/terms/term";
import { hideTip, showTip } from "@/components/tokens/tip-layer";
import { isWholeWord, Promoted, wordsFirst } from "@/components/tokens/token-chip";
import { ScrollBox } from "@/components/ui/pane-head";
import { useIsNarrow, useWidth } from "@/hooks/use-size";
import { sequentialStep } from "@/lib/scales/colour-scale";
import { formatFixed, formatProbability } from "@/lib/text/format";
import { type Edge, Edges } from "@/pages/prompt/edges";
import { ExpertName } from "@/pages/prompt/expert-name";
import { CellTip, ColumnTip, heatEvents } from "@/pages/prompt/routing/heat-map/heat-map";
import { type Column, columnText, type HeatRow, type Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";

import {
  CELL,
  cellKey,
  cellWidth,
  type Fed,
  joinedSides,
  percentOf,
  type TracedCell,
  type TraceLayer,
} from "./trace-rows";

/** Milliseconds on the cell before the effects are requested, so that a passing pointer requests nothing. */
const REST_MS = 250;
const MAX_WRITTEN = 3;
/** Labels with less say nothing: what the expert writes takes their place, in this many cells, with this change or more. */
const MIN_F1 = 0.1;
const MIN_CHANGE = 0.1;
const MAX_VAGUE = 48;

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
        {effect === undefined && <span className="dim">…</span>}
        {effect !== undefined && <Promoted tokens={wordsFirst(effect.promoted).slice(0, MAX_WRITTEN)} />}
      </div>
    </>
  );
}

/** By cell, the words that an expert without a meaningful label writes on its token. */
function useWritten({ prompt, layers, fed }: TraceTableProps): ReadonlyMap<string, string> {
  const vague = layers
    .flatMap(({ run, tokens }) =>
      [...tokens].flatMap(([position, [first]]) => {
        const { label, automatic } = first?.row.info ?? {};
        const isVague = label === null && (automatic?.f1 ?? 0) < MIN_F1;
        return first !== undefined && isVague ? [{ run, position, expert: first.row.expert }] : [];
      }),
    )
    .slice(0, MAX_VAGUE);
  return useQueries({
    // After the finding.
    queries: vague.map((cell) => directEffectsQuery(cell.run, prompt, fed === undefined ? null : cell.position)),
    combine: (results) =>
      new Map(
        vague.flatMap((cell, i) => {
          const effect = results[i]?.data?.experts.find(({ expert }) => expert === cell.expert);
          const words =
            effect?.promoted
              .filter(({ text, change }) => isWholeWord(text) && change >= MIN_CHANGE)
              .slice(0, MAX_WRITTEN) ?? [];
          return words.length === 0 ? [] : [[cellKey(cell), words.map(({ text }) => text.trim()).join(", ")]];
        }),
      ),
  });
}

interface TraceTableProps {
  readonly prompt: string;
  readonly columns: readonly Column[];
  readonly layers: readonly TraceLayer[];
  readonly predicted: Predicted;
  /** Position of the token whose path is in the panel; undefined until it is found. */
  readonly current: number | undefined;
  /** Position that the table scrolls to; null for its beginning. */
  readonly locked: number | null;
  readonly chosen: TracedCell | null;
  /** What the chosen cell feeds; undefined until it is measured. */
  readonly fed: readonly Fed[] | undefined;
  readonly onChoose: (position: number, cell: TracedCell | null) => void;
}

interface CellProps extends Pick<TraceTableProps, "chosen" | "fed"> {
  readonly layer: TraceLayer;
  readonly position: number;
  /** The sides on which it is one box with its neighbour. */
  readonly joined: string | undefined;
  /** What its expert writes, in place of a label. */
  readonly written: string | undefined;
}

function Cell({ layer, position, chosen, fed, joined, written }: CellProps) {
  const [strongest] = layer.tokens.get(position) ?? [];
  if (strongest === undefined) return <span className="dim">–</span>;
  const { row, cell } = strongest;
  const isChosen = chosen?.run === layer.run && chosen.position === position && chosen.expert === row.expert;
  const amount = fed?.find((one) => one.run === layer.run && one.position === position);
  const step = Math.max(1, sequentialStep(cell.activation, layer.end));
  const isRest = joined !== undefined && /left|above/.test(joined);
  return (
    <button
      type="button"
      className="expert-box"
      data-position={position}
      data-run={layer.run}
      data-expert={row.expert}
      data-node={cellKey({ run: layer.run, position })}
      data-joined={joined}
      data-fed={amount === undefined ? undefined : amount.change > 0 ? "up" : "down"}
      aria-pressed={isChosen}
      style={{ "--fill": `${(100 * cell.activation) / layer.end}%`, "--colour": `var(--seq-${step})` } as CSSProperties}
    >
      <span className="name">
        <span className={isRest ? "sr" : "clamp"}>
          {written === undefined ? (
            <ExpertName info={row.info} />
          ) : (
            <span className="ink2" title={`Writes ${written}; no clear label`}>
              → {written}
            </span>
          )}
        </span>
      </span>
      <small className="mono">{row.expert}</small>
      <em className="num">
        {amount === undefined
          ? formatFixed(cell.activation, 1)
          : `${amount.change > 0 ? "+" : "−"}${percentOf(amount.share)}`}
      </em>
    </button>
  );
}

function useEvents({ prompt, columns, layers, predicted, onChoose }: TraceTableProps) {
  return useMemo(() => {
    const find = (position: number, run: string | undefined) => {
      const layer = layers.find((one) => one.run === run);
      return { layer, traced: layer?.tokens.get(position)?.[0], column: columns.find((c) => c.position === position) };
    };
    return heatEvents({
      onEnter: ({ position }, element) => {
        const { layer, traced, column } = find(position, element.dataset.run);
        if (column === undefined) return;
        const isCell = layer !== undefined && traced !== undefined;
        const index = element.closest<HTMLTableCellElement>("td, th")?.cellIndex ?? 0;
        const lowest = [...(element.closest("table")?.tBodies[0]?.rows ?? [])].at(-1)?.cells[index];
        showTip(
          element,
          isCell ? (
            <TracedTip run={layer.run} prompt={prompt} column={column} row={traced.row} />
          ) : (
            <ColumnTip column={column} predicted={predicted} />
          ),
          "hover",
          lowest, // below it, over no cell of the table
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

/** The most probable next token of the original model and, where it differs, with the layers replaced. */
function NextToken({ token, layers }: { readonly token: PredictedToken | undefined; readonly layers: number }) {
  if (token === undefined) return "…";
  const [original] = token.predictions;
  if (original === undefined) return null;
  const replaced = token.predictions.reduce((best, one) => (one.replaced > best.replaced ? one : best), original);
  return (
    <>
      <span className="tk" title={original.text}>
        {columnText(original.text)}
      </span>
      <span className="dim num">{formatProbability(original.original)} %</span>
      {replaced !== original && (
        <span className="dim">
          <span className="sr">
            with {layers} {layers === 1 ? "layer" : "layers"}
          </span>{" "}
          → {columnText(replaced.text)}
        </span>
      )}
    </>
  );
}

/** Width of a cell in a box, which scrolls as far as a locked token needs. */
function useCellWidth(box: RefObject<HTMLElement | null>, { columns, locked }: TraceTableProps): number {
  const isNarrow = useIsNarrow();
  const width = useWidth(box);
  useEffect(() => {
    if (locked === null || width === 0) return;
    const chosen = box.current?.querySelector('tbody [aria-pressed="true"]') ?? box.current?.querySelector("thead .lk");
    chosen?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [box, locked, width]);
  return cellWidth(width, columns.length, isNarrow ? CELL.narrow : CELL.min);
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
      <tr className="traced-next">
        <th scope="row">
          <Term id="traced_next">
            Next<span className="sr"> token</span>
          </Term>
        </th>
        {columns.map(({ position }) => (
          <td key={position}>
            <NextToken token={predicted?.[position]} layers={layers.length} />
          </td>
        ))}
      </tr>
    </thead>
  );
}

export function TraceTable(props: TraceTableProps) {
  const { columns, layers, chosen, fed } = props;
  const events = useEvents(props);
  const box = useRef<HTMLDivElement>(null);
  const width = CELL.head + columns.length * (useCellWidth(box, props) + CELL.gap);
  const written = useWritten(props);
  const edges = useMemo(() => fedEdges(chosen, fed), [chosen, fed]);
  return (
    <ScrollBox className="layer-box trace-box" label="Layers of the prompt" ref={box}>
      <div className="layer-table">
        <Edges edges={edges} />
        <table className="trace" aria-label="Strongest expert, layers by tokens" style={{ width }} {...events}>
          <Head {...props} />
          <tbody>
            {layers.map((layer, row) => (
              <tr key={layer.run}>
                <th scope="row" title={layer.run}>
                  <span className="sr">Layer </span>
                  {layer.layer}
                </th>
                {columns.map(({ position }, column) => (
                  <td key={position}>
                    <Cell
                      layer={layer}
                      position={position}
                      chosen={chosen}
                      fed={fed}
                      joined={joinedSides(layers, columns, row, column)}
                      written={written.get(cellKey({ run: layer.run, position }))}
                    />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </ScrollBox>
  );
}
