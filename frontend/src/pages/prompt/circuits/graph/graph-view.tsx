/** The graph: nodes are buttons, edges are SVG paths. Dashes and symbols show signs in addition to colour. */

import { type KeyboardEvent, useLayoutEffect, useMemo, useRef, useState } from "react";

import type { CircuitGraph, CircuitResponse } from "@/api/types";
import { useTips } from "@/components/tokens/tip-layer";
import { contradiction, type MeasuredEffects } from "@/pages/prompt/circuits/check/measured";

import { centreSelected, useBoxWidth, useHiddenLeft, useSelectedInSight } from "./graph-box";
import { type Direction, type Layout, layoutCircuit, neighbour, type PlacedNode } from "./layout";
import { bandName, mlpBand } from "./mlp-bands";
import { accessibleName, boxName, sign, signClass, tokenText } from "./node-labels";
import { NodeTip } from "./node-tip";
import type { ShownGraph } from "./shown-graph";

const MAX_STROKE_WIDTH = 4.5;
/** On a phone, text stays readable: a graph that is wider at this magnification is scrolled. */
const MIN_FIT_NARROW = 0.7;
const NARROW = 600;
/** Nodes become narrower before the text becomes smaller than this. */
const GOOD_FIT = 0.86;
const DIRECTIONS: ReadonlySet<string> = new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"]);

interface GraphViewProps {
  readonly response: CircuitResponse;
  readonly shown: ShownGraph;
  /** Id of a shown node. */
  readonly selected: string | null;
  /** Ids of the graph's nodes. */
  readonly ablated: ReadonlySet<string>;
  readonly pinned: ReadonlySet<string>;
  /** Layers whose predictions were not confirmed. */
  readonly weak: ReadonlySet<number>;
  readonly measured: MeasuredEffects;
  /** Magnification; null for the largest that fits the width. */
  readonly zoom: number | null;
  readonly onSelect: (id: string) => void;
}

interface EdgesProps {
  readonly shown: ShownGraph;
  readonly layout: Layout;
  readonly weak: ReadonlySet<number>;
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

const isWeak = ({ shown: { node } }: PlacedNode, weak: ReadonlySet<number>) =>
  node.kind === "expert" && node.layer !== null && weak.has(node.layer);

function Edges({ shown, layout, weak, active }: EdgesProps) {
  const [strongest] = shown.edges;
  return (
    <svg className="circuit-edges" width={layout.width} height={layout.height} aria-hidden="true">
      {shown.edges.toReversed().map((edge) => {
        const [from, to] = [layout.nodes[edge.source], layout.nodes[edge.target]];
        if (from === undefined || to === undefined) return null;
        const isTouched = edge.source === active || edge.target === active;
        const emphasis = active === null ? (isWeak(from, weak) ? " weak" : "") : isTouched ? " near" : " far";
        return (
          <path
            key={`${edge.source}-${edge.target}`}
            d={curve(from, to)}
            className={`${signClass(edge.weight)}${emphasis}`}
            strokeWidth={0.8 + MAX_STROKE_WIDTH * Math.sqrt(edge.influence / (strongest?.influence ?? 1))}
          />
        );
      })}
    </svg>
  );
}

interface NodeButtonProps extends Omit<GraphViewProps, "shown" | "zoom"> {
  readonly placed: PlacedNode;
  readonly isTabStop: boolean;
  readonly onActive: (placed: PlacedNode | null, element: Element | null) => void;
  readonly onArrow: (event: KeyboardEvent<HTMLElement>, from: PlacedNode) => void;
}

function NodeButton(props: NodeButtonProps) {
  const { response, placed, selected, ablated, pinned, weak, measured, isTabStop, onActive, onArrow, onSelect } = props;
  const { shown, index } = placed;
  const { node, supernode, id } = shown;
  const isWord = supernode === null && (node.kind === "target" || node.kind === "embedding");
  const areAll = (ids: ReadonlySet<string>) => shown.members.every((member) => ids.has(response.ids[member] ?? ""));
  const marks = {
    supernode: supernode !== null,
    selected: id === selected,
    ablated: areAll(ablated),
    pinned: areAll(pinned),
    weak: isWeak(placed, weak),
  };
  const contradicted = contradiction(response, shown.members, measured);
  const classes = Object.entries(marks).flatMap(([name, isMarked]) => (isMarked ? [name] : []));
  return (
    <button
      type="button"
      className={["cnode", node.kind, signClass(node.effect), ...classes].join(" ")}
      style={{
        left: placed.x - placed.width / 2,
        top: placed.y - placed.height / 2,
        width: placed.width,
        height: placed.height,
      }}
      tabIndex={isTabStop ? 0 : -1}
      data-node={index}
      aria-label={[
        accessibleName(response, shown),
        ...(contradicted === null ? [] : [contradicted.text]),
        ...(marks.ablated ? ["ablated"] : []),
        ...(marks.pinned ? ["pinned"] : []),
      ].join(", ")}
      aria-pressed={marks.selected}
      onClick={() => {
        // The side panel shows the tooltip's content from now on.
        onActive(null, null);
        onSelect(id);
      }}
      onKeyDown={(event) => onArrow(event, placed)}
      onPointerEnter={({ currentTarget }) => onActive(placed, currentTarget)}
      onPointerLeave={() => onActive(null, null)}
      onFocus={({ currentTarget }) => currentTarget.matches(":focus-visible") && onActive(placed, currentTarget)}
      onBlur={() => onActive(null, null)}
    >
      {!isWord && <i aria-hidden="true">{sign(node.effect)}</i>}
      <span aria-hidden="true">{boxName(response, shown)}</span>
      {/* Generated content, because the button’s name says it as text. */}
      {contradicted !== null && (
        <em
          aria-hidden="true"
          data-mark={contradicted.badge}
          className={contradicted.badge.endsWith("≠") ? "opposite" : undefined}
        />
      )}
    </button>
  );
}

/** Tokens without a node of their own, shown so that the text is readable. */
function PlainTokens({ response, layout }: { readonly response: CircuitResponse; readonly layout: Layout }) {
  const { graph } = response;
  const withNode = new Set(
    layout.nodes.flatMap(({ shown: { node } }) => (node.kind === "embedding" ? [node.position] : [])),
  );
  const row = layout.rows.at(-1);
  if (row === undefined) return null;
  return layout.columns
    .filter(({ position, width }) => width > 0 && !withNode.has(position))
    .map(({ position, x, width, isGap }) => (
      <span key={position} className="ctoken" style={{ left: x, width, top: row.y + row.height / 2 - 13 }}>
        {isGap ? "…" : tokenText(graph, position)}
      </span>
    ));
}

function rowTitle(graph: CircuitGraph, name: string): string {
  if (name === "target") return "Next token";
  if (name === "embedding") return "Tokens, by position";
  return bandName(mlpBand(graph, Number(name)) ?? { first: Number(name), last: Number(name) });
}

interface RowTitlesProps {
  readonly graph: CircuitGraph;
  readonly layout: Layout;
  readonly weak: ReadonlySet<number>;
}

function RowTitles({ graph, layout, weak }: RowTitlesProps) {
  return (
    <div className="circuit-rows" style={{ height: layout.height }} aria-hidden="true">
      {layout.rows.map(({ name, y, height }) => (
        <span key={name} className={weak.has(Number(name)) ? "weak" : undefined} style={{ top: y, height }}>
          {rowTitle(graph, name)}
        </span>
      ))}
    </div>
  );
}

/** Arrow keys move between nodes; one node is in the tab order. */
function useArrowKeys(layout: Layout) {
  const [stop, setStop] = useState(0);
  const onArrow = (event: KeyboardEvent<HTMLElement>, from: PlacedNode) => {
    if (!DIRECTIONS.has(event.key)) return;
    event.preventDefault();
    const next = neighbour(layout.nodes, from, event.key as Direction);
    if (next === undefined) return;
    setStop(next.index);
    const node = event.currentTarget.parentElement?.querySelector<HTMLElement>(`[data-node="${next.index}"]`);
    node?.scrollIntoView({ block: "nearest", inline: "nearest" });
    // After the scroll event, which closes tooltips.
    requestAnimationFrame(() => node?.focus({ preventScroll: true }));
  };
  return { stop: stop < layout.nodes.length ? stop : 0, onArrow };
}

/** The hovered or focused node: shows its tooltip and highlights its edges. */
function useActive(response: CircuitResponse, measured: MeasuredEffects) {
  const [active, setActive] = useState<number | null>(null);
  const tips = useTips();
  const onActive = (placed: PlacedNode | null, element: Element | null) => {
    setActive(placed?.index ?? null);
    if (placed === null || element === null) tips.hide();
    else tips.show(element, <NodeTip response={response} shown={placed.shown} measured={measured} />);
  };
  return { active, onActive };
}

const ROW_TITLES = 80;

export function GraphView({ shown, zoom, ...marks }: GraphViewProps) {
  const { response, selected, weak, measured } = marks;
  const box = useRef<HTMLDivElement>(null);
  const available = useBoxWidth(box);
  const isFitted = zoom === null && available > 0;
  const layout = useMemo(
    () => layoutCircuit(response.graph, shown, isFitted ? available / GOOD_FIT - ROW_TITLES : Infinity),
    [response, shown, isFitted, available],
  );
  const { active, onActive } = useActive(response, measured);
  const { stop, onArrow } = useArrowKeys(layout);
  const { width, height } = layout;
  const fit = isFitted
    ? Math.min(1, Math.max(available < NARROW ? MIN_FIT_NARROW : 0, available / (width + ROW_TITLES)))
    : 1;
  const hidden = useHiddenLeft(box);
  const current = layout.nodes.findIndex(({ shown: { id } }) => id === selected);
  // The selected node stays in view: at first the next token, which is the last.
  useLayoutEffect(() => centreSelected(box.current), [response, zoom, fit, available]);
  useSelectedInSight(box, zoom);
  return (
    <>
      <div className={hidden.isHidden ? "circuit-box more-left" : "circuit-box"} ref={box} onScroll={hidden.update}>
        <div className="circuit-zoom" style={{ zoom: zoom ?? fit }}>
          <RowTitles graph={response.graph} layout={layout} weak={weak} />
          <div
            className="circuit"
            role="group"
            aria-label="Circuit; use the arrow keys to move between nodes"
            style={{ width, height }}
          >
            {layout.rows.map(({ name, y }) => (
              <i key={name} className="circuit-line" style={{ top: y }} />
            ))}
            <Edges shown={shown} layout={layout} weak={weak} active={active ?? (current > 0 ? current : null)} />
            <PlainTokens response={response} layout={layout} />
            {layout.nodes.map((placed) => (
              <NodeButton
                key={placed.shown.id}
                {...marks}
                placed={placed}
                isTabStop={placed.index === stop}
                onActive={onActive}
                onArrow={onArrow}
              />
            ))}
          </div>
        </div>
      </div>
      <p className="circuit-cue dim">{hidden.isHidden && "Earlier tokens are to the left: scroll sideways"}</p>
    </>
  );
}
