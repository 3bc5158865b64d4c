import { expect, test } from "vitest";

import type { CircuitResponse } from "@/api/types";

import { checkLayers, comparison, correlationInterval, isWeak, unexplained, verdict } from "./verdict";

const agreement = (correlation: number | null, same_sign: number, slope: number) => ({
  correlation,
  correlation_without_largest: correlation,
  same_sign,
  slope,
});

test("the verdict depends on correlation, direction and size", () => {
  expect(verdict(agreement(0.9, 1, 0.9), 20, 20)?.level).toBe("good");
  expect(verdict(agreement(0.9, 1, 0.2), 20, 20)?.level).toBe("weak");
  expect(verdict(agreement(0.37, 0.92, 0.2), 24, 24)?.level).toBe("weak");
  expect(verdict(agreement(0.09, 0.39, 0), 31, 31)?.level).toBe("bad");
  expect(verdict(agreement(null, 1, 1), 3, 3)?.level).toBe("weak");
  expect(verdict(agreement(null, 1, 1), 0, 0)).toBeNull();
  expect(verdict(agreement(0.4, 0.7, 0.5), 20, 20)?.headline).toContain("by chance");
  expect(verdict(agreement(0.4, 0.7, 0.5), 100, 100)?.headline).not.toContain("by chance");
});

const notes = (found: ReturnType<typeof verdict>) => found?.figures.map(({ value, note }) => `${value}: ${note}`);

test("it names its sample and the interval", () => {
  const found = verdict(agreement(0.09, 0.39, -0.01), 31, 31);
  expect(notes(found)).toEqual([
    "39 % right: of its 31 experts, ablated one at a time. 95 % interval 24 % to 56 %; 50 % is chance",
    "r = 0.09: 95 % interval −0.27 to 0.43",
    "−0.01: measured change per predicted change. 1 is exact",
  ]);
  expect(notes(verdict(agreement(0.9, 1, 1), 64, 80))?.[0]).toContain("the 64 most influential of its 80 experts");
  expect(notes(verdict(agreement(null, 1, 1), 3, 3))?.[1]).toBe("–: needs at least 5 experts");
});

test("it says if the correlation depends on one expert", () => {
  const sentence = "0.41 without the largest predicted change";
  const one = { ...agreement(0.94, 0.55, 0.2), correlation_without_largest: 0.41 };
  expect(notes(verdict(one, 20, 20))?.[1]).toContain(sentence);
  expect(notes(verdict(agreement(0.94, 0.55, 0.2), 20, 20))?.[1]).not.toContain("without");
});

test("the influence that begins outside tokens and experts is named with its remedy", () => {
  const most = unexplained({ embedding: 0.01, expert: 0.05, mlp: 0.9, error: 0.04 });
  expect(most).toMatchObject({ name: "Unexplained", value: "94 %" });
  expect(most?.note).toContain("90.0 % in MLPs without a run, 4.0 % in error nodes. Train runs for more layers");
  expect(unexplained({ expert: 0.7, error: 0.3 })?.note).toContain("Train more accurate runs");
  expect(unexplained({})).toBeNull();
});

test("a measured effect is compared in sign and size", () => {
  expect(comparison(0.4, 0.1)).toContain("25 % of its size");
  expect(comparison(-0.4, 0.1)).toContain("opposite sign");
  expect(comparison(0, 0.1)).toContain("predicts no effect");
});

test("an interval is wider for fewer experts, and contains r", () => {
  const [low, high] = correlationInterval(0.5, 10);
  const [narrowLow, narrowHigh] = correlationInterval(0.5, 100);
  expect(low).toBeLessThan(narrowLow);
  expect(high).toBeGreaterThan(narrowHigh);
  expect(narrowLow).toBeLessThan(0.5);
  expect(narrowHigh).toBeGreaterThan(0.5);
});

test("a layer is weak if little of its predicted change is measured", () => {
  const nodes = [
    { layer: 0, effect: 2 },
    { layer: 0, effect: -1 },
    { layer: 3, effect: 1 },
    { layer: null, effect: 1 },
  ];
  const response = { graph: { nodes }, ids: ["a", "b", "c", "d"] } as unknown as CircuitResponse;
  const measured = new Map([
    ["a", -0.4],
    ["b", -0.1],
    ["c", -0.9],
  ]);
  const layers = checkLayers(response, measured);
  expect(layers.map(({ layer, experts, share }) => [layer, experts, Number(share.toFixed(3))])).toEqual([
    [0, 2, 0.1],
    [3, 1, 0.9],
  ]);
  expect(layers.map(isWeak)).toEqual([true, false]);
});
