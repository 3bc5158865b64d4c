/** Arrows between boxes of a table, and where an arrow key leads from one. */

import "./edges.css";

import { useLayoutEffect, useRef, useState } from "react";

export interface Edge {
  /** What `data-node` of its boxes says. */
  readonly from: string;
  readonly to: string;
  /** Whether the first box raises the second one. */
  readonly isUp: boolean;
  /** Relative to the largest. */
  readonly size: number;
  readonly isNear: boolean;
}

const WIDTH = { min: 0.8, more: 3.2 } as const;
/** Between the ends of edges at a box, at most, and from the corners. */
const PORT = { most: 22, edge: 12 } as const;
/** Between an edge and the boxes that it passes, at least. */
const CLEAR = 3;
const LANES = 4;

/** Between an edge and one of the boxes beside a gap: edges have lanes, so that each can be followed through a wide gap. */
export const clearOf = (index: number, gap: number) =>
  CLEAR + (Math.max(0, gap - 2 * CLEAR) * (index % LANES)) / (LANES - 1);

/** Place of an element inside an ancestor; unlike that of its client rectangle, not scaled in a presentation. */
function placeOf(element: HTMLElement, inside: Element) {
  let [x, y] = [element.offsetWidth / 2, 0];
  for (let at: Element | null = element; at instanceof HTMLElement && at !== inside; at = at.offsetParent) {
    x += at.offsetLeft;
    y += at.offsetTop;
  }
  return { x, top: y, bottom: y + element.offsetHeight, width: element.offsetWidth };
}

type Place = ReturnType<typeof placeOf>;
type Places = ReadonlyMap<string | undefined, Place>;

/** Where an edge leaves or reaches a box: side by side, in the order of the other ends. */
function portOf(edge: Edge, edges: readonly Edge[], places: Places, own: "from" | "to", other: "from" | "to") {
  const { x = 0, width = 0 } = places.get(edge[own]) ?? {};
  const farX = (each: Edge) => places.get(each[other])?.x ?? 0;
  const beside = edges.filter((each) => each[own] === edge[own]).toSorted((a, b) => farX(a) - farX(b));
  const room = Math.min(PORT.most, (width - PORT.edge) / beside.length);
  return x + room * (beside.indexOf(edge) - (beside.length - 1) / 2);
}

/**
 * Upwards from a point to another, with upright ends. Where the curve would cross a box, it passes through the nearest gap
 * of that line of boxes.
 */
function curve(x: number, y: number, endX: number, endY: number, boxes: readonly Place[], clear: number): string {
  const at = (height: number) => {
    const done = (y - height) / (y - endY);
    return x + (endX - x) * done * done * (3 - 2 * done);
  };
  const between = boxes.filter(({ top, bottom }) => bottom < y && top > endY).sort((a, b) => b.top - a.top);
  const crossed = between.find((box) => {
    const [left, right] = [at(box.top), at(box.bottom)].sort((a, b) => a - b) as [number, number];
    return left < box.x + box.width / 2 + CLEAR && right > box.x - box.width / 2 - CLEAR;
  });
  const third = (y - endY) / 3;
  if (crossed === undefined) return `C${x} ${y - third} ${endX} ${endY + third} ${endX} ${endY}`;
  const { top, bottom } = crossed;
  const line = between.filter((box) => box.top === top);
  const wanted = at((top + bottom) / 2);
  const [gap = wanted] = line
    .flatMap((box) => [-1, 1].map((side) => box.x + side * (box.width / 2 + clear)))
    .filter((place) => line.every((box) => Math.abs(place - box.x) > box.width / 2))
    .sort((a, b) => Math.abs(a - wanted) - Math.abs(b - wanted));
  return `${curve(x, y, gap, bottom, boxes, clear)}V${top}${curve(gap, top, endX, endY, boxes, clear)}`;
}

/** From the top of a lower box to the bottom of a higher one. `gap`: pixels between the boxes of a line. */
export function Edges({ edges, gap }: { readonly edges: readonly Edge[]; readonly gap: number }) {
  const svg = useRef<SVGSVGElement>(null);
  const [places, setPlaces] = useState<Places>(new Map());
  useLayoutEffect(() => {
    const inside = svg.current?.parentElement;
    if (inside == null) return undefined;
    const measure = () => {
      const boxes = [...inside.querySelectorAll<HTMLElement>("[data-node]")];
      setPlaces(new Map(boxes.map((box) => [box.dataset.node, placeOf(box, inside)])));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(inside);
    return () => observer.disconnect();
  }, [edges]);
  return (
    <svg ref={svg} className="edges" width="100%" height="100%" aria-hidden="true">
      {edges.map((edge, index) => {
        const { from, to, isUp, size, isNear } = edge;
        const [start, end] = [places.get(from), places.get(to)];
        if (start === undefined || end === undefined) return null;
        const [x, endX] = [portOf(edge, edges, places, "from", "to"), portOf(edge, edges, places, "to", "from")];
        const width = WIDTH.min + WIDTH.more * Math.sqrt(size);
        const head = Math.min(4 + 1.7 * width, 0.6 * Math.abs(start.top - end.bottom));
        const tail = end.bottom + head;
        const clear = clearOf(index, gap);
        return (
          <g key={`${from}-${to}`} className={`${isUp ? "up" : "down"}${isNear ? " near" : ""}`}>
            <path
              d={`M${x} ${start.top}${curve(x, start.top, endX, tail, [...places.values()], clear)}`}
              {...{ fill: "none", stroke: "currentColor", strokeWidth: width }}
            />
            <polygon
              fill="currentColor"
              points={`${endX - head / 2},${tail} ${endX + head / 2},${tail} ${endX},${end.bottom}`}
            />
          </g>
        );
      })}
    </svg>
  );
}

/** Among which cells an arrow key moves, and by how many. Empty cells are skipped. */
const MOVES: Readonly<Record<string, readonly ["row" | "column", number]>> = {
  ArrowRight: ["row", 1],
  ArrowLeft: ["row", -1],
  ArrowDown: ["column", 1],
  ArrowUp: ["column", -1],
};

export function nextCell(cell: HTMLElement, key: string): HTMLElement | undefined {
  const [along, step] = MOVES[key] ?? ["row", 0];
  const [inside, which] =
    along === "row" ? ["tr", "[data-position]"] : ["table", `[data-position="${cell.dataset.position}"]`];
  const cells = [...(cell.closest(inside)?.querySelectorAll<HTMLElement>(which) ?? [])];
  return step === 0 ? undefined : cells[cells.indexOf(cell) + step];
}
