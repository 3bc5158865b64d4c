/** The graph: nodes are buttons, edges are SVG paths. Dashes and symbols show signs in addition to colour. */

import { type KeyboardEvent, useMemo, useState } from "react";

import type { CircuitResponse } from "@/api/types";
import { useTips } from "@/components/tokens/tip-layer";
import { visibleText } from "@/lib/text/token-text";
import { type ChosenExpert, chosenKey } from "@/pages/prompt/circuits/circuit-params";

import { type Direction, type Layout, layoutCircuit, neighbour, type PlacedNode } from "./layout";
import { nodeExpert, signClass, sign, accessibleName, tokenText } from "./node-labels";
import { NodeTip } from "./node-tip";

const MAX_STROKE_WIDTH = 4.5;
const DIRECTIONS: ReadonlySet<string> = new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"]);

/** Scroll to the last token, from which the next one is predicted. */
function scrollToLastToken(box: HTMLElement | null) {
  if (box !== null) box.scrollLeft = box.scrollWidth;
}

interface GraphViewProps {
  readonly response: CircuitResponse;
  readonly chosen: readonly ChosenExpert[];
  readonly onToggle: (expert: ChosenExpert) => void;
  /** Shows the node in the side panel. */
  readonly onPreview: (index: number) => void;
}

interface EdgesProps {
  readonly response: CircuitResponse;
  readonly placed: readonly PlacedNode[];
  readonly width: number;
  readonly height: number;
  /** Node whose edges are highlighted; null for none. */
  readonly active: number | null;
}

/** Bézier curve from the top of the source to the bottom of the target, vertical at both ends. */
function curve(from: PlacedNode, to: PlacedNode): string {
  const [y1, y2] = [from.y - from.height / 2, to.y + to.height / 2];
  const bend = Math.max(14, Math.abs(y1 - y2) * 0.45);
  const point = (x: number, y: number) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  return `M${point(from.x, y1)}C${point(from.x, y1 - bend)} ${point(to.x, y2 + bend)} ${point(to.x, y2)}`;
}

function Edges({ response, placed, width, height, active }: EdgesProps) {
  const { edges } = response.graph;
  const maxInfluence = Math.max(1e-9, ...edges.map(({ influence }) => influence));
  return (
    <svg className="circuit-edges" width={width} height={height} aria-hidden="true">
      {edges.toReversed().map((edge) => {
        const [from, to] = [placed[edge.source], placed[edge.target]];
        if (from === undefined || to === undefined) return null;
        const isTouched = edge.source === active || edge.target === active;
        return (
          <path
            key={`${edge.source}-${edge.target}`}
            d={curve(from, to)}
            className={`${signClass(edge.weight)}${active === null ? "" : isTouched ? " near" : " far"}`}
            strokeWidth={0.8 + MAX_STROKE_WIDTH * Math.sqrt(edge.influence / maxInfluence)}
          />
        );
      })}
    </svg>
  );
}

interface NodeButtonProps {
  readonly response: CircuitResponse;
  readonly placed: PlacedNode;
  readonly isChosen: boolean;
  readonly isTabStop: boolean;
  readonly isFar: boolean;
  readonly onActive: (index: number | null, element: Element | null) => void;
  readonly onArrow: (event: KeyboardEvent<HTMLElement>, from: PlacedNode) => void;
  readonly onToggle: (expert: ChosenExpert) => void;
}

function NodeButton(props: NodeButtonProps) {
  const { response, placed, isChosen, isTabStop, isFar, onActive, onArrow, onToggle } = props;
  const { graph } = response;
  const { node, index } = placed;
  const expert = nodeExpert(node);
  const style = {
    left: placed.x - placed.width / 2,
    top: placed.y - placed.height / 2,
    width: placed.width,
    height: placed.height,
  };
  return (
    <button
      type="button"
      className={`cnode ${node.kind} ${signClass(node.effect)}${isChosen ? " chosen" : ""}${isFar ? " far" : ""}`}
      style={style}
      tabIndex={isTabStop ? 0 : -1}
      data-node={index}
      aria-label={accessibleName(graph, node)}
      {...(expert !== null && { "aria-pressed": isChosen })}
      onClick={() => {
        if (expert !== null) onToggle(expert);
      }}
      onKeyDown={(event) => onArrow(event, placed)}
      onPointerEnter={({ currentTarget }) => onActive(index, currentTarget)}
      onPointerLeave={() => onActive(null, null)}
      onFocus={({ currentTarget }) => onActive(index, currentTarget)}
      onBlur={() => onActive(null, null)}
    >
      <span aria-hidden="true">
        {node.kind === "target" && visibleText(graph.target.text)}
        {node.kind === "embedding" && tokenText(graph, node.position)}
        {node.layer !== null && sign(node.effect)}
      </span>
    </button>
  );
}

/** Tokens without a node of their own, shown so that the text is readable. */
function PlainTokens({ response, layout }: { response: CircuitResponse; layout: Layout }) {
  const { graph } = response;
  const withNode = new Set(graph.nodes.flatMap(({ kind, position }) => (kind === "embedding" ? [position] : [])));
  const row = layout.rows.at(-1);
  if (row === undefined) return null;
  return layout.columns
    .filter(({ position }) => !withNode.has(position))
    .map(({ position, x, width }) => (
      <span key={position} className="ctoken" style={{ left: x, width, top: row.y + row.height / 2 - 13 }}>
        {tokenText(graph, position)}
      </span>
    ));
}

const rowTitle = (name: string) =>
  name === "target" ? "Next token" : name === "embedding" ? "Tokens" : `Layer ${name}`;

function RowTitles({ layout }: { readonly layout: Layout }) {
  return (
    <div className="circuit-rows" style={{ height: layout.height }} aria-hidden="true">
      {layout.rows.map(({ name, y, height }) => (
        <span key={name} style={{ top: y, height }}>
          {rowTitle(name)}
        </span>
      ))}
    </div>
  );
}

/** Arrow keys move between nodes; one node is in the tab order. */
function useArrowKeys(layout: Layout) {
  const [tabStop, setStop] = useState(0);
  const onArrow = (event: KeyboardEvent<HTMLElement>, from: PlacedNode) => {
    if (!DIRECTIONS.has(event.key)) return;
    event.preventDefault();
    const next = neighbour(layout.nodes, from, event.key as Direction);
    if (next === undefined) return;
    setStop(next.index);
    event.currentTarget.parentElement?.querySelector<HTMLElement>(`[data-node="${next.index}"]`)?.focus();
  };
  return { stop: tabStop, onArrow };
}

/** The hovered or focused node: shows its tooltip and highlights its edges. */
function useActive(response: CircuitResponse, onPreview: (index: number) => void) {
  const [active, setActive] = useState<number | null>(null);
  const tips = useTips();
  const onActive = (index: number | null, element: Element | null) => {
    setActive(index);
    if (index === null || element === null) {
      tips.hide();
      return;
    }
    onPreview(index);
    tips.show(element, <NodeTip response={response} index={index} />);
  };
  return { active, onActive };
}

export function GraphView({ response, chosen, onToggle, onPreview }: GraphViewProps) {
  const { graph } = response;
  const layout = useMemo(() => layoutCircuit(graph), [graph]);
  const { active, onActive } = useActive(response, onPreview);
  const { stop, onArrow } = useArrowKeys(layout);
  const { width, height } = layout;
  const keys = new Set(chosen.map(chosenKey));
  const near = new Set(
    graph.edges.flatMap(({ source, target }) => (source === active || target === active ? [source, target] : [])),
  );
  return (
    <div className="circuit-box" ref={scrollToLastToken}>
      <RowTitles layout={layout} />
      <div
        className="circuit"
        role="group"
        aria-label="Circuit; use the arrow keys to move between nodes"
        style={{ width, height }}
      >
        {layout.rows.map(({ name, y }) => (
          <i key={name} className="circuit-line" style={{ top: y }} />
        ))}
        <Edges response={response} placed={layout.nodes} width={width} height={height} active={active} />
        <PlainTokens response={response} layout={layout} />
        {layout.nodes.map((placed) => {
          const expert = nodeExpert(placed.node);
          return (
            <NodeButton
              key={placed.index}
              response={response}
              placed={placed}
              isChosen={expert !== null && keys.has(chosenKey(expert))}
              isTabStop={placed.index === stop}
              isFar={active !== null && active !== placed.index && !near.has(placed.index)}
              onActive={onActive}
              onArrow={onArrow}
              onToggle={onToggle}
            />
          );
        })}
      </div>
    </div>
  );
}
