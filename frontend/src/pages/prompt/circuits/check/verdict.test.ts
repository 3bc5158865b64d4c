import { expect, test } from "vitest";

import { correlationInterval, unexplained, verdict } from "./verdict";

const agreement = (correlation: number | null, same_sign: number, slope: number) => ({
  correlation,
  correlation_without_largest: correlation,
  same_sign,
  slope,
});

const EXPLAINED = { expert: 0.6, embedding: 0.2, mlp: 0.2 };
const check = (found: ReturnType<typeof agreement>, checked: number, experts: number) =>
  verdict(found, checked, experts, EXPLAINED);

test("the verdict depends on correlation, direction and size", () => {
  expect(check(agreement(0.9, 1, 0.9), 20, 20)?.level).toBe("good");
  expect(check(agreement(0.9, 1, 0.2), 20, 20)?.level).toBe("weak");
  expect(check(agreement(0.37, 0.92, 0.2), 24, 24)?.level).toBe("weak");
  expect(check(agreement(0.09, 0.39, 0), 31, 31)?.level).toBe("bad");
  expect(check(agreement(null, 1, 1), 3, 3)?.level).toBe("weak");
  expect(check(agreement(null, 1, 1), 0, 0)).toBeNull();
  expect(check(agreement(0.4, 0.7, 0.5), 20, 20)?.headline).toContain("by chance");
  expect(check(agreement(0.4, 0.7, 0.5), 100, 100)?.headline).not.toContain("by chance");
});

test("a graph whose influence is mostly unexplained has no good verdict, and says so", () => {
  const found = verdict(agreement(0.9, 1, 0.9), 20, 20, { expert: 0.06, mlp: 0.9, error: 0.04 });
  expect(found?.level).toBe("weak");
  expect(found?.headline).toBe(
    "Predicted expert effects hold on this prompt, but 94 % of the influence is unexplained",
  );
  expect(verdict(agreement(0.1, 0.4, 0), 20, 20, { mlp: 0.9 })?.headline).toMatch(/^Do not rely.*, and 90 % of/);
  expect(verdict(agreement(0.9, 1, 0.9), 20, 20, {})?.level).toBe("weak");
});

const notes = (found: ReturnType<typeof verdict>) =>
  found?.figures.map(({ value, note }) => `${value}: ${note}`.replaceAll("\u00a0", " "));

test("it names its sample and the interval", () => {
  const found = check(agreement(0.09, 0.39, -0.01), 31, 31);
  expect(notes(found)).toEqual([
    "39 % right: of its 31 experts, ablated one at a time. 95 % interval 24 % to 56 %; 50 % is chance",
    "r = 0.09: 95 % interval −0.27 to 0.43",
    "−0.01: measured per predicted change. 1 is exact",
  ]);
  expect(notes(check(agreement(0.9, 1, 1), 64, 80))?.[0]).toContain("the 64 most influential of its 80 experts");
  expect(notes(check(agreement(null, 1, 1), 3, 3))?.[1]).toBe("–: needs at least 5 experts");
});

test("the headline of a bad graph names what fails", () => {
  expect(check(agreement(0.1, 0.4, 0), 20, 20)?.headline).toContain("in direction and size");
  expect(check(agreement(0.8, 0.55, 0.4), 20, 20)?.headline).toContain("directions that it predicts are often wrong");
  expect(check(agreement(0.1, 0.9, 0.4), 20, 20)?.headline).toContain("sizes that it predicts do not correlate");
});

test("it says if the correlation depends on one expert", () => {
  const sentence = "0.41 without the largest predicted change";
  const one = { ...agreement(0.94, 0.55, 0.2), correlation_without_largest: 0.41 };
  expect(notes(check(one, 20, 20))?.[1]).toContain(sentence);
  expect(notes(check(agreement(0.94, 0.55, 0.2), 20, 20))?.[1]).not.toContain("without");
});

test("the influence that begins outside tokens and experts is named with its remedy", () => {
  const most = unexplained({ embedding: 0.01, expert: 0.05, mlp: 0.9, error: 0.04 });
  expect(most).toMatchObject({ name: "Unexplained", value: "94 %" });
  expect(most?.note).toContain("90.0 % in MLPs without a run, 4.0 % in error nodes. Train runs for more layers");
  expect(unexplained({ expert: 0.7, error: 0.3 })?.note).toContain("Train more accurate runs");
  expect(unexplained({})).toBeNull();
});

test("an interval is wider for fewer experts, and contains r", () => {
  const [low, high] = correlationInterval(0.5, 10);
  const [narrowLow, narrowHigh] = correlationInterval(0.5, 100);
  expect(low).toBeLessThan(narrowLow);
  expect(high).toBeGreaterThan(narrowHigh);
  expect(narrowLow).toBeLessThan(0.5);
  expect(narrowHigh).toBeGreaterThan(0.5);
});
