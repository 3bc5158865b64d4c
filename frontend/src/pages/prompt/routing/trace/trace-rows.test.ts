import { expect, test } from "vitest";

import type { RunRouting } from "@/api/types";
import { heatColumns } from "@/pages/prompt/routing/heat-map/heat-rows";

import {
  CELL,
  cellWidth,
  controlsOf,
  expertsByLayer,
  headlineOf,
  isRepeat,
  leadCells,
  percentOf,
  readCells,
  strongestFed,
  toldOf,
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

const SOURCE = {
  info,
  run: "early",
  layer: 0,
  position: 1,
  expert: 4,
  activation: 1,
  specific: 1,
  trust: 0.8,
  name: "“drink”",
};
const cellOf = (name: string, trust: number, position = 1) => ({
  ...SOURCE,
  ...{ run: "late", layer: 5, name, trust, position },
});

test("the change to tell of is large, of an expert with a clear name, and of another word than the source's", () => {
  const fed = (name: string, share: number, trust: number) => ({
    ...{ ...cellOf(name, trust), change: share, share },
  });
  const all = [fed("“old”", 0.5, 0.9), fed("“woman”", 0.3, 0.1), fed("“lady”", -0.2, 0.6)];
  expect(toldOf(all, "“ancient” or “old”")?.name).toBe("“lady”");
  expect(toldOf(all.slice(0, 1), "“old”")?.name).toBe("“old”");
  expect(toldOf([fed("“old”", 0.5, 0.9), fed("weak", 0.3, 0)], "“old”")?.name).toBe("weak");
  expect(toldOf([], "")).toBeUndefined();
});

test.each([
  [0.0762, "7.6\u202f%"],
  [-0.25, "25\u202f%"],
])("a change of %f is in percent of the activation", (share, text) => {
  expect(percentOf(share)).toBe(text);
});

test("a name is repeated if it stands on the left or below", () => {
  const of = (run: string, ...names: readonly number[]) =>
    ({
      run,
      tokens: names.map((expert, id) => ({ id, text: " x", experts: [{ expert, activation: 1, share: 1 }] })),
      experts: Object.fromEntries(names.map((expert) => [expert, { ...info, label: `name ${expert % 10}` }])),
    }) as unknown as RunRouting;
  const [late, early] = [of("late", 1, 1, 3), of("early", 11, 2, 13)];
  const columns = heatColumns(late, true);
  const layers = traceLayers([late, early], RUNS, columns, 100);
  const repeated = layers.map((_, layer) => columns.map((_column, column) => isRepeat(layers, columns, layer, column)));
  expect(repeated).toEqual([
    [true, true, true],
    [false, false, false],
  ]);
});

test.each([
  ["the largest rise", [cellOf("“sugar”", 0.5), cellOf("“water”", 0.5)], [-0.1, -0.2], "“water”"],
  ["a rise rather than a larger fall", [cellOf("“sugar”", 0.5), cellOf("“water”", 0.5)], [-0.1, 0.9], "“sugar”"],
  ["no weak name", [cellOf("“sugar”", 0.5), cellOf("“water”", 0)], [-0.1, -0.9], "“sugar”"],
  ["no function word", [cellOf("“sugar”", 0.5), cellOf("“the” or “his”", 0.9)], [-0.1, -0.9], "“sugar”"],
  ["no word after a cell without one", [cellOf("Line breaks after “):”", 0.9)], [-0.9], undefined],
  ["no form of the same word", [cellOf("“sugar”", 0.5), cellOf("“drinks” or “tea”", 0.9)], [-0.1, -0.9], "“sugar”"],
  ["rather one on another token", [cellOf("“sugar”", 0.5), cellOf("“water”", 0.5, 2)], [-0.15, -0.1], "“water”"],
  ["words without quotation marks", [cellOf("Fires in instructions", 1)], [-0.1], "Fires in instructions"],
  ["no small rise", [cellOf("“sugar”", 0.5)], [-0.009], undefined],
])("a headline tells of %s", (_, cells, changes, name) => {
  const found = headlineOf([SOURCE, ...cells], [SOURCE], [[-1, ...changes]]);
  expect(found?.told.name).toBe(name);
  expect(found?.fed.length).toBe(name === undefined ? undefined : 1);
});

test("the experts of each layer are ablated together, without layers that have none", () => {
  const layers = traceLayers([EARLY, LATE], RUNS, heatColumns(LATE, false), 100);
  const groups = expertsByLayer(layers, [EARLY, LATE], 1);
  expect(groups.map((group) => [group[0]?.layer, group.map(({ expert }) => expert)])).toEqual([
    [5, [9, 1, 2, 3]],
    [0, [4]],
  ]);
  expect(expertsByLayer(layers, [EARLY, LATE], 0)).toEqual([]);
});

test("a change is compared with that of other experts of the token", () => {
  const controls = controlsOf([EARLY, LATE], { run: "late", position: 1, expert: 2 });
  expect(controls.map((group) => group.map(({ expert }) => expert))).toEqual([[9], [1], [3]]);
  expect(controlsOf([EARLY], { run: "early", position: 1, expert: 4 })).toEqual([]);
});

test("a headline's cell is looked for below the last layer, among trusted names with a subject", () => {
  const early = routing("early", [[4, 1]]);
  const named = (label: string | null) => ({ ...early, experts: { 4: { ...info, label } } }) as unknown as RunRouting;
  const leads = (...routings: readonly RunRouting[]) =>
    leadCells(readCells(traceLayers(routings, RUNS, heatColumns(LATE, false), 100))).map(({ run }) => run);
  expect(leads(named("Water"), LATE)).toEqual(["early"]);
  expect(leads(named(null), LATE)).toEqual([]);
  expect(leads(named("“the”"), LATE)).toEqual([]);
  expect(leads(LATE)).toEqual([]);
});
