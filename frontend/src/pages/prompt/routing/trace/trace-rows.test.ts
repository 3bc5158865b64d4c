import { expect, test } from "vitest";

import type { RunRouting } from "@/api/types";
import { clearOf } from "@/pages/prompt/edges";
import { heatColumns } from "@/pages/prompt/routing/heat-map/heat-rows";

import {
  ablationsOf,
  CELL,
  cellWidth,
  controlsOf,
  percentOf,
  readCells,
  strongestFed,
  type TracedCell,
  traceLayers,
} from "./trace-rows";

const info = { label: null, automatic: null, density: 0.01, max_activation: 1, top_tokens: [" girl"] };

function routing(run: string, experts: readonly (readonly [number, number])[]): RunRouting {
  const routed = experts.map(([expert, share]) => ({ expert, activation: 10 * share, share }));
  return {
    run,
    tokens: [
      { id: 0, text: "<s>", start: true, experts: [] },
      { id: 1, text: " girl", start: false, experts: routed },
    ],
    experts: Object.fromEntries(experts.map(([expert]) => [expert, { ...info, density: expert === 9 ? 0.9 : 0.01 }])),
  } as unknown as RunRouting;
}

const LATE = routing("late", [
  [9, 0.5],
  [1, 0.1],
  [2, 0.2],
  [3, 0.15],
]);
const EARLY = routing("early", [[4, 1]]);
const RUNS = [
  { name: "early", layer: 0 },
  { name: "late", layer: 5 },
];

test("the last layer is first, and each token has its strongest rare experts first", () => {
  const layers = traceLayers([EARLY, LATE], RUNS, heatColumns(LATE, false), 100);
  expect(layers.map(({ run }) => run)).toEqual(["late", "early"]);
  expect(layers[0]?.tokens.get(1)?.map(({ row }) => row.expert)).toEqual([2, 3, 1, 9]);
  expect(layers[0]?.tokens.has(0)).toBe(false);
});

test("experts that fire nearly everywhere can be left out", () => {
  const layers = traceLayers([EARLY, LATE], RUNS, heatColumns(LATE, false), 50);
  expect(layers[0]?.tokens.get(1)?.map(({ row }) => row.expert)).toEqual([2, 3, 1]);
});

test.each([
  [1392, 14],
  [940, 14],
  [358, 40],
])("in %i px, whole cells of %i tokens fill the box", (available, tokens) => {
  const width = cellWidth(available, tokens) + CELL.gap;
  const room = available - CELL.head;
  const shown = Math.floor(room / width);
  expect(room - shown * width).toBeLessThan(shown);
  expect(width).toBeGreaterThanOrEqual(CELL.tight + CELL.gap);
});

test("tight cells show all tokens of a text that usual ones would cut", () => {
  expect(cellWidth(754, 8)).toBe(79);
  expect(cellWidth(754, 9)).toBe(91);
});

test("a cell feeds later layers on its own token and after it; small changes are left out", () => {
  const cells = readCells(traceLayers([EARLY, LATE], RUNS, heatColumns(LATE, false), 100));
  expect(cells).toMatchObject([
    { run: "late", layer: 5, position: 1, expert: 2, activation: 2 },
    { run: "early", layer: 0, position: 1, expert: 4 },
  ]);
  const early = { run: "early", position: 1, expert: 4 };
  const fedBy = (cell: TracedCell, change: number) =>
    strongestFed(cells, cell, { activations: [change, 9], weaker: [19, 0], clear: [true, false] });
  const found = { run: "late", change: 0.5, share: 0.25, weaker: 19, isClear: true };
  expect(fedBy(early, -0.5)).toMatchObject([found]);
  expect(fedBy(early, 0.001)).toEqual([]);
  expect(fedBy({ ...early, position: 2 }, -0.5)).toEqual([]);
  expect(fedBy({ run: "late", position: 1, expert: 2 }, -0.5)).toEqual([]);
});

test.each([
  [0.0762, "7.6\u202f%"],
  [-0.25, "25\u202f%"],
])("a change of %f is in percent of the activation", (share, text) => {
  expect(percentOf(share)).toBe(text);
});

test("the experts of a layer are ablated together, then each by itself, at most as many as the server takes", () => {
  const ablated = (position: number) =>
    ablationsOf([EARLY, LATE], "late", position).map((group) => group.map(({ expert }) => expert));
  expect(ablated(1)).toEqual([[9, 2, 3, 1], [9], [2], [3], [1]]);
  expect(ablated(0)).toEqual([]);
  const many = routing(
    "late",
    Array.from({ length: 80 }, (_, expert) => [expert, 1 + expert] as const),
  );
  const [together, ...single] = ablationsOf([many], "late", 1);
  expect([together?.length, single.length, single[0]?.[0]?.expert]).toEqual([64, 63, 79]);
});

test("a change is compared with that of other experts of the token", () => {
  const controls = controlsOf([EARLY, LATE], { run: "late", position: 1, expert: 2 });
  expect(controls.map(({ expert }) => expert)).toEqual([9, 1, 3]);
  expect(controlsOf([EARLY], { run: "early", position: 1, expert: 4 })).toEqual([]);
});

test("a curve of every lane passes between two columns", () => {
  expect([0, 1, 2, 3].map((lane) => clearOf(lane, CELL.gap))).toEqual([3, 3, 3, 3]);
  expect([0, 1, 2, 3].map((lane) => Math.round(clearOf(lane, 14)))).toEqual([3, 6, 8, 11]);
});
