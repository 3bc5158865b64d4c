import { expect, test } from "vitest";

import type { RunRouting } from "@/api/types";
import { heatColumns } from "@/pages/prompt/routing/heat-map/heat-rows";

import { CELL, cellWidth, fedPercent, leadCells, readCells, strongestFed, toldOf, traceLayers } from "./trace-rows";

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
  expect(layers[0]?.tokens.get(1)?.map(({ row }) => row.expert)).toEqual([2, 3, 1]);
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
  const width = cellWidth(available, tokens, CELL.min) + CELL.gap;
  const room = available - CELL.head;
  const shown = Math.floor(room / width);
  expect(room - shown * width).toBeLessThan(shown);
  expect(width).toBeGreaterThanOrEqual(CELL.tight + CELL.gap);
});

test("tight cells show all tokens of a text that usual ones would cut", () => {
  expect(cellWidth(754, 8, CELL.min)).toBe(80);
  expect(cellWidth(754, 9, CELL.min)).toBe(109);
});

test("a cell feeds later layers on its own token and after it; small changes are left out", () => {
  const cells = readCells(traceLayers([EARLY, LATE], RUNS, heatColumns(LATE, false), 100));
  expect(cells).toMatchObject([
    { run: "late", layer: 5, position: 1, expert: 2, activation: 2 },
    { run: "early", layer: 0, position: 1, expert: 4 },
  ]);
  const early = { run: "early", position: 1, expert: 4 };
  expect(strongestFed(cells, early, [-0.5, 9])).toMatchObject([{ run: "late", change: 0.5, share: 0.25 }]);
  expect(strongestFed(cells, early, [0.001, 9])).toEqual([]);
  expect(strongestFed(cells, { ...early, position: 2 }, [-0.5, 9])).toEqual([]);
  expect(strongestFed(cells, { run: "late", position: 1, expert: 2 }, [-0.5, 9])).toEqual([]);
});

test("an expert with a clear label is named if its change is at least half of the largest", () => {
  const fed = (expert: number, share: number, isNamed: boolean) => ({
    ...{ run: "late", position: 1, expert, change: share, share, isNamed },
  });
  expect(toldOf([fed(1, 0.3, false), fed(2, -0.2, true)])?.expert).toBe(2);
  expect(toldOf([fed(1, 0.5, false), fed(2, 0.2, true)])?.expert).toBe(1);
  expect(toldOf([])).toBeUndefined();
});

test.each([
  [0.0762, "+7.6\u202f%"],
  [-0.25, "−25\u202f%"],
])("a change of %f is in percent of the activation", (share, text) => {
  expect(fedPercent({ share })).toBe(text);
});

test("the cell that feeds most is looked for below the last layer", () => {
  const cells = readCells(traceLayers([EARLY, LATE], RUNS, heatColumns(LATE, false), 100));
  expect(leadCells(cells).map(({ run }) => run)).toEqual(["early"]);
  expect(leadCells(readCells(traceLayers([LATE], RUNS, heatColumns(LATE, false), 100)))).toEqual([]);
});
