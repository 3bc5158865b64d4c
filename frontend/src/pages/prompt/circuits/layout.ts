/** Order of a circuit's nodes: a column per token, a row per layer, the target on top. */

import type { CircuitGraph } from "@/api/types";

/** The target, then each layer, the last one first, with the indices of its experts, strongest first. */
export function graphRows({ nodes }: CircuitGraph) {
  const layers = new Set(nodes.flatMap(({ layer }) => layer ?? []));
  return [null, ...[...layers].sort((a, b) => b - a)].map((layer) => ({
    title: layer === null ? "Target" : `Layer ${layer}`,
    indices: [...nodes.keys()].filter((index) => nodes[index]?.layer === layer),
  }));
}

interface TokenRun {
  readonly positions: readonly number[];
  /** Whether it is a token with experts or the target. */
  readonly isNamed: boolean;
}

/** Each token with experts or the target by itself, and the others joined; without an unnamed start token. */
export function tokenRuns(graph: CircuitGraph): readonly TokenRun[] {
  const named = new Set(graph.nodes.map(({ position }) => position));
  const runs: TokenRun[] = [];
  graph.tokens.forEach(({ start }, position) => {
    const isNamed = named.has(position);
    if (start && !isNamed) return;
    const last = runs.at(-1);
    if (last === undefined || isNamed || last.isNamed) runs.push({ positions: [position], isNamed });
    else runs[runs.length - 1] = { ...last, positions: [...last.positions, position] };
  });
  return runs;
}

const DIRECTIONS = {
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
} as const;

type Place = Pick<DOMRect, "x" | "y">;

/** Index of the nearest box in the direction of an arrow key; a sideways offset counts 2.5 times. */
export function neighbour(boxes: readonly Place[], from: Place, key: string): number | undefined {
  if (!(key in DIRECTIONS)) return undefined;
  const [dx, dy] = DIRECTIONS[key as keyof typeof DIRECTIONS];
  const distances = boxes.map(({ x, y }) => {
    const ahead = dx * (x - from.x) + dy * (y - from.y);
    const aside = Math.abs(dy * (x - from.x)) + Math.abs(dx * (y - from.y));
    return ahead <= 1 ? Infinity : ahead + 2.5 * aside;
  });
  const least = Math.min(...distances);
  return least === Infinity ? undefined : distances.indexOf(least);
}
