import { expect, test } from "vitest";

import type { Frontier, FrontierLine, FrontierPoint, RunSummary } from "@/api/types";

import {
  conditionsNotes,
  errorNote,
  frontierVerdict,
  intervalNote,
  routingNote,
  truncationNote,
} from "./frontier-verdict";

const estimate = (value: number, half: number) => ({ value, low: value - half, high: value + half });

function point(k: number, loss: number, rest: Partial<FrontierPoint> = {}): FrontierPoint {
  return {
    k,
    trained_k: 24,
    runs: ["one"],
    parameters: 1000,
    loss_increase: estimate(loss, 0.01),
    normalized_mse: estimate(0.2, 0.01),
    routing_share: estimate(0.99, 0.01),
    strict_routing_share: estimate(0.95, 0.01),
    difference: null,
    ...rest,
  };
}

const line = (name: string, own: boolean, points: readonly FrontierPoint[]): FrontierLine => ({
  name,
  own,
  runs: [name],
  method: "mxd",
  points: [...points],
});

const ONE = line("one", true, [point(6, 0.08), point(24, 0.03)]);
const TWO = line("two", false, [
  point(6, 0.09, { difference: estimate(-0.006, 0.007) }),
  point(24, 0.02, { difference: estimate(0.005, 0.004), strict_routing_share: estimate(0.99, 0.01) }),
]);

const frontier = (...lines: FrontierLine[]): Frontier => ({
  text: "held.jsonl",
  tokens: 8192,
  sequences: 64,
  seen_text: false,
  lines,
});

test("the verdict names the lower run at each K, with the paired interval", () => {
  expect(frontierVerdict(frontier(ONE, TWO))).toEqual([
    "two raises the loss less than one, by 0.0050 (0.0010 to 0.0090) nats per token at K = 24; " +
      "they do not differ clearly at K = 6.",
  ]);
});

test("each other run has a verdict of its own, with the K of either sign together", () => {
  const lower = line("three", false, [
    point(6, 0.09, { difference: estimate(-0.02, 0.01) }),
    point(24, 0.04, { difference: estimate(-0.01, 0.005) }),
  ]);
  const level = line("four", false, [point(24, 0.03, { difference: estimate(0, 0.01) })]);
  expect(frontierVerdict(frontier(ONE, lower, level))).toEqual([
    "one raises the loss less than three, by 0.0200 (0.0100 to 0.0300) nats per token at K = 6 " +
      "and by 0.0100 (0.0050 to 0.0150) nats per token at K = 24.",
    "one and four do not differ clearly at K = 24.",
  ]);
});

test("a line alone is described by its course", () => {
  expect(frontierVerdict(frontier(ONE))[0]).toMatch(
    /^From K = 6 to 24, .* from 0\.0800 \(0\.0700 to 0\.0900\) to 0\.0300/,
  );
});

test("equal conditions are said once, unequal ones with the names of the runs", () => {
  const settings = { trained_tokens: 1000, parameters: 500, k: 24, text: "t", target_tokens: 1000 };
  const summary = (name: string, rest: object = {}) => ({ ...settings, name, ...rest }) as unknown as RunSummary;
  const three = line("three", false, [point(24, 0.04)]);
  const all = frontier(ONE, TWO, three);
  expect(
    conditionsNotes(
      all,
      ["one", "two", "three"].map((name) => summary(name)),
    ),
  ).toEqual([expect.stringMatching(/^Equal conditions/)]);
  expect(conditionsNotes(all, [summary("one"), summary("two"), summary("three", { parameters: 900 })])).toEqual([
    expect.stringMatching(/^one and two. Equal conditions/),
    expect.stringMatching(/^one and three. Not a fair comparison/),
  ]);
});

test("truncated runs are named", () => {
  expect(truncationNote(frontier(ONE, TWO))).toMatch(
    /^Hollow points, K = 6: runs trained at K = 24 .* trained at K = 6/,
  );
  expect(truncationNote(frontier(line("one", true, [point(24, 0.1)])))).toBeNull();
});

test("unequal routing shares favour the run with the lower one", () => {
  expect(routingNote(frontier(ONE, TWO))).toMatch(
    /where the strict routing share differs: one 95.*The lower share lowers the loss increase of one\. Its loss increase is still above that of two at K = 24\. Its dense path does not/,
  );
  expect(routingNote(frontier(ONE))).not.toContain("lowers the loss increase of");
});

test("intervals say what they cover", () => {
  expect(intervalNote(frontier(ONE))).toBe(
    "Intervals: 95 %, bootstrap over the 64 sequences, not training seeds: each run has one.",
  );
});

test("the run with the lower error is named at each K", () => {
  const better = { ...TWO, points: TWO.points.map((each) => ({ ...each, normalized_mse: estimate(0.19, 0.01) })) };
  expect(errorNote(frontier(ONE, better))).toBe("Lower normalised MSE: two at K = 6 and 24. Not tested in pairs.");
  expect(errorNote(frontier(ONE))).toBeNull();
});
