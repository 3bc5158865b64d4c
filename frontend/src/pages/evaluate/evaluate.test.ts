import { expect, test } from "vitest";

import type { Cell, Chapter, Section } from "@/api/types";

import { axisOf } from "./dots";
import { partsOf } from "./parts";

const cell = (value: number, low: number | null, high: number | null): Cell => ({
  value,
  low,
  high,
  text: String(value),
  interval: "",
  is_best: false,
  outcome: null,
  note: "",
  footnote: "",
});

test("an axis has round ends with room around the intervals", () => {
  expect(axisOf([cell(0.81, 0.79, 0.83), cell(0.9, 0.88, 0.91)]).map((end) => end.toFixed(3))).toEqual([
    "0.750",
    "0.950",
  ]);
  const [low, high] = axisOf([cell(-1, -2, 0), cell(3, 2, 4)]);
  expect(low).toBeLessThan(-2);
  expect(high).toBeGreaterThan(4);
  expect(axisOf([cell(0.42, 0.4, 0.45)])).toEqual([0, 0.6]);
  expect(axisOf([cell(0, null, null)])[0]).toBe(0);
});

test("measured chapters are folded parts, and the others one at the end", () => {
  const section = (key: string, isMeasured: boolean) =>
    ({ key, tables: [], figure: isMeasured ? { name: key } : null }) as unknown as Section;
  const chapter = (key: string, isMeasured: boolean, isFolded = true): Chapter => ({
    ...{ key, title: key, note: "", is_folded: isFolded },
    sections: [section(`${key}-1`, isMeasured)],
  });
  const chapters = [
    chapter("verdict", true, false),
    chapter("faithfulness", true),
    chapter("frontier", true),
    chapter("benchmark", false),
    chapter("probing", true),
    chapter("steering", false),
  ];
  const parts = partsOf(chapters).map(({ key, sections }) => [key, ...sections.map((each) => each.key)]);
  expect(parts).toEqual([
    ["faithfulness", "faithfulness-1", "frontier-1"],
    ["probing", "probing-1"],
    ["unmeasured", "benchmark-1", "steering-1"],
  ]);
  expect(partsOf(chapters)[0]?.title).toBe("faithfulness and frontier");
});
