/** The graph: nodes are buttons, edges are SVG paths. Dashes and symbols show signs in addition to colour. */

import { type KeyboardEvent, useLayoutEffect, useMemo, useRef, useState } from "react";

import type { CircuitCheck, CircuitResponse } from "@/api/types";
import { formatSigned } from "@/lib/text/format";

import { type Layout, layoutCircuit, neighbour, NODE_HEIGHT, type Placed } from "./layout";
import { boxName, nodeName, signClass, tokenText } from "./names";

const MAX_STROKE = 4.5;

interface GraphProps {
  readonly response: CircuitResponse;
  readonly check: CircuitCheck | null;
  /** Indices of nodes; `active` is the one whose edges are highlighted. */
  readonly selected: number;
  readonly active: number;
  readonly onSelect: (index: number) => void;
  /** The node under the pointer or focus, null when it leaves. */
  readonly onHover: (index: number | null) => void;
}

function curve(from: Placed, to: Placed): string {
  const [y1, y2] = [from.y - NODE_HEIGHT / 2, to.y + NODE_HEIGHT / 2];
  const bend = Math.max(14, Math.abs(y1 - y2) * 0.45);
  return `M${from.x} ${y1}C${from.x} ${y1 - bend} ${to.x} ${y2 + bend} ${to.x} ${y2}`;
}

function Edges({ response, layout, active }: Pick<GraphProps, "response" | "active"> & { readonly layout: Layout }) {
  const { nodes, edges } = response.graph;
  /** Share of the target's change that an edge stands for. */
  const size = ({ source, target, predicted }: (typeof edges)[number]) => {
    const end = nodes[target];
    return target === 0 || end?.activation == null
      ? Math.abs(nodes[source]?.predicted ?? 0)
      : Math.abs((predicted / end.activation) * end.predicted);
  };
  const largest = Math.max(1e-9, ...edges.map(size));
  return (
    <svg className="circuit-edges" width={layout.width} height={layout.height} aria-hidden="true">
      {edges.map((edge) => {
        const [from, to] = [layout.nodes[edge.source], layout.nodes[edge.target]];
        if (from === undefined || to === undefined) return null;
        const isNear = active > 0 && (edge.source === active || edge.target === active);
        const emphasis = isNear ? "near" : edge.target === 0 ? "to-target" : "";
        return (
          <path
            key={`${edge.source}-${edge.target}`}
            d={curve(from, to)}
            className={`${signClass(edge.predicted)} ${emphasis}`}
            strokeWidth={0.8 + MAX_STROKE * Math.sqrt(size(edge) / largest)}
          />
        );
      })}
    </svg>
  );
}

interface NodeProps extends GraphProps {
  readonly placed: Placed;
  readonly isTabStop: boolean;
  readonly onArrow: (event: KeyboardEvent<HTMLElement>, from: Placed) => void;
}

function Node({ response, check, selected, placed, isTabStop, onSelect, onHover, onArrow }: NodeProps) {
  const { index } = placed;
  const node = response.graph.nodes[index];
  if (node === undefined) return null;
  const measured = check?.measured[index];
  const isTarget = node.kind === "target";
  return (
    <button
      type="button"
      className={`cnode ${isTarget ? "target" : signClass(node.predicted)}${index === selected ? " selected" : ""}`}
      style={{
        left: placed.x - placed.width / 2,
        top: placed.y - NODE_HEIGHT / 2,
        width: placed.width,
        height: NODE_HEIGHT,
      }}
      tabIndex={isTabStop ? 0 : -1}
      data-node={index}
      aria-pressed={index === selected}
      onClick={() => onSelect(index)}
      onKeyDown={(event) => onArrow(event, placed)}
      onPointerEnter={() => onHover(index)}
      onPointerLeave={() => onHover(null)}
      onFocus={({ currentTarget }) => currentTarget.matches(":focus-visible") && onHover(index)}
      onBlur={() => onHover(null)}
    >
      <span>
        <i className="sr">{isTarget ? "Target: " : `${nodeName(response, node)}, `}</i>
        {boxName(response, node)}
      </span>
      <em>
        {!isTarget && <i className="sr">, ablated: predicted </i>}
        {formatSigned(node.predicted, 2)}
        {measured != null && (
          <b>
            <i className="sr">, measured</i> {formatSigned(measured, 2)}
          </b>
        )}
      </em>
    </button>
  );
}

export function Graph(props: GraphProps) {
  const { response, active } = props;
  const box = useRef<HTMLDivElement>(null);
  const layout = useMemo(() => layoutCircuit(response.graph), [response]);
  const [stop, setStop] = useState(0);
  // The target and the strongest experts are at the last tokens.
  useLayoutEffect(() => {
    if (box.current !== null) box.current.scrollLeft = box.current.scrollWidth;
  }, [response]);
  const onArrow = (event: KeyboardEvent<HTMLElement>, from: Placed) => {
    const next = neighbour(layout.nodes, from, event.key);
    if (next === undefined) return;
    event.preventDefault();
    setStop(next.index);
    event.currentTarget.parentElement?.querySelector<HTMLElement>(`[data-node="${next.index}"]`)?.focus();
  };
  const { width, height } = layout;
  return (
    <div className="circuit-box" ref={box}>
      <div className="circuit-rows" style={{ height }} aria-hidden="true">
        {layout.rows.map(({ title, y, height: rowHeight }) => (
          <span key={title} style={{ top: y, height: rowHeight }}>
            {title}
          </span>
        ))}
      </div>
      <div
        className="circuit"
        role="group"
        aria-label="Circuit; use the arrow keys to move between nodes"
        style={{ width, height }}
      >
        {layout.columns.map(({ position, x, width: column }, place) => (
          <span key={position ?? `gap ${place}`} className="ctoken" style={{ left: x, width: column }}>
            {position === null ? "…" : tokenText(response.graph, position)}
          </span>
        ))}
        <Edges response={response} layout={layout} active={active} />
        {layout.nodes.map((placed) => (
          <Node key={placed.index} {...props} placed={placed} isTabStop={placed.index === stop} onArrow={onArrow} />
        ))}
      </div>
    </div>
  );
}
