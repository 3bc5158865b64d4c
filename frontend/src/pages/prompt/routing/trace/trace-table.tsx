/** Layers as rows, tokens as columns, and in each cell the strongest experts, linked to their pages. */

import { type CSSProperties, useCallback, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Link } from "react-router";

import { pageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { useTips } from "@/components/tokens/tip-layer";
import { sequentialStep } from "@/lib/scales/colour-scale";
import { columnText } from "@/pages/prompt/routing/heat-map/columns";
import { type CellPosition, heatEvents } from "@/pages/prompt/routing/heat-map/heat-events";
import type { Column, Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";
import { CellTip, ColumnTip } from "@/pages/prompt/routing/heat-map/heat-tips";

import { type TracedExpert, type TraceLayer, tracedName } from "./trace-rows";

interface TraceTableProps {
  readonly columns: readonly Column[];
  readonly layers: readonly TraceLayer[];
  readonly predicted: Predicted;
  /** Position of the token whose path is in the side panel. */
  readonly current: number | undefined;
  readonly onChoose: (position: number) => void;
}

interface ExpertProps extends TracedExpert {
  readonly layer: TraceLayer;
  readonly position: number;
}

function Expert({ layer, position, row, cell }: ExpertProps) {
  return (
    <Link
      to={pageLinks(layer.run).expert(row.expert)}
      tabIndex={-1}
      data-position={position}
      data-expert={row.expert}
      className={`s${Math.max(1, sequentialStep(cell.coefficient, layer.end))}`}
    >
      {tracedName(row.expert, row.info)}
    </Link>
  );
}

function useEvents({ columns, layers, predicted, onChoose }: TraceTableProps) {
  const tips = useTips();
  return useMemo(() => {
    const tipAt = ({ position, expert }: CellPosition, run: string | undefined) => {
      const column = columns.find((one) => one.position === position);
      const layer = layers.find((one) => one.run === run);
      const traced = layer?.tokens.get(position)?.find(({ row }) => row.expert === expert);
      if (column === undefined) return null;
      if (traced === undefined) return <ColumnTip column={column} predicted={predicted} />;
      return <CellTip row={traced.row} column={column} />;
    };
    return heatEvents({
      onEnter: (cell, element) => tips.show(element, tipAt(cell, element.closest("tr")?.dataset.run)),
      onLeave: tips.hide,
      onLock: ({ position, expert }) => {
        if (expert === null) onChoose(position);
      },
    });
  }, [columns, layers, onChoose, predicted, tips]);
}

/** The most probable next token after each token, at the end of its path. */
function Predictions({ columns, predicted, current }: Pick<TraceTableProps, "columns" | "predicted" | "current">) {
  return (
    <tfoot>
      <tr>
        <th scope="row">Next token</th>
        {columns.map(({ position }) => {
          const best = predicted?.[position]?.predictions[0];
          return (
            <td key={position} className={position === current ? "lk" : undefined}>
              {best === undefined ? "…" : <TokenChip text={best.text} />}
            </td>
          );
        })}
      </tr>
    </tfoot>
  );
}

/** Number of tokens beyond the right edge, updated on scrolling and resizing. */
function useHiddenTokens(count: number) {
  const box = useRef<HTMLDivElement>(null);
  const [hidden, setHidden] = useState(0);
  const update = useCallback(() => {
    const heads = [...(box.current?.querySelectorAll("thead button") ?? [])].slice(0, count);
    const right = box.current?.getBoundingClientRect().right ?? 0;
    setHidden(heads.filter((head) => head.getBoundingClientRect().right > right + 1).length);
  }, [count]);
  useLayoutEffect(() => {
    if (box.current === null) return undefined;
    const observer = new ResizeObserver(update);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [update]);
  return { box, hidden, update };
}

export function TraceTable(props: TraceTableProps) {
  const { columns, layers, predicted, current } = props;
  const events = useEvents(props);
  const { box, hidden, update } = useHiddenTokens(columns.length);
  const mark = (position: number) => (position === current ? "lk" : undefined);
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div ref={box} className="trace-box" tabIndex={0} role="region" aria-label="Trace" onScroll={update}>
      <table
        className="trace"
        style={{ "--tokens": columns.length } as CSSProperties}
        aria-label="Strongest experts, layers by tokens"
        {...events}
      >
        <thead>
          <tr>
            <th>
              <span className="sr">Layer</span>
            </th>
            {columns.map(({ position, token }) => (
              <th key={position} scope="col" className={mark(position)}>
                <button type="button" data-position={position} aria-pressed={position === current}>
                  {columnText(token.text)}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {layers.map((layer) => (
            <tr key={layer.run} data-run={layer.run}>
              <th scope="row" title={layer.run}>
                Layer {layer.layer}
              </th>
              {columns.map(({ position }) => (
                <td key={position} className={mark(position)}>
                  {layer.tokens.get(position)?.map((traced) => (
                    <Expert key={traced.row.expert} layer={layer} position={position} {...traced} />
                  ))}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
        <Predictions columns={columns} predicted={predicted} current={current} />
      </table>
      <p className="heat-cue dim">
        {hidden > 0 && `${hidden} more ${hidden === 1 ? "token" : "tokens"} to the right: scroll sideways`}
      </p>
    </div>
  );
}
