import { expect, test } from "vitest";

import { type Example, examplesStatus, listedExamples, nextToCheck } from "./examples";
import type { Level } from "./verdict";

const example = (prompt: string, level?: Level | null, reliability = 0.5): Example => ({
  prompt,
  found: level == null ? level : { level, headline: level, reliability, checked: 20, figures: [] },
});

test("examples are checked in order until three are usable", () => {
  expect(nextToCheck([example("a"), example("b")])).toBe(0);
  const two = [example("a", "good"), example("b", "bad"), example("c", null), example("d", "weak"), example("e")];
  expect(nextToCheck(two)).toBe(4);
  expect(nextToCheck([...two.slice(0, 4), example("e", "weak"), example("f")])).toBeNull();
  expect(nextToCheck([example("a", "bad")])).toBeNull();
});

test("checked examples are listed with the most reliable first, and the failed ones stay", () => {
  const done = [example("a", "bad"), example("b", "weak"), example("c", null), example("d", "good")];
  expect(listedExamples(done).map(({ prompt }) => prompt)).toEqual(["d", "b", "a", "c"]);
  const weak = [example("a", "weak", 0.4), example("b", "weak", 0.6), example("c", "weak", 0.5)];
  expect(listedExamples(weak).map(({ prompt }) => prompt)).toEqual(["b", "c", "a"]);
  expect(examplesStatus(done)).toContain("2 of 4 examples have a usable graph");
  expect(examplesStatus(done)).toContain("They were selected for this");
});

test("while they are checked, the progress is shown and the order does not change", () => {
  const some = [example("a", "bad"), example("b"), example("c"), example("d")];
  expect(listedExamples(some).map(({ prompt }) => prompt)).toEqual(["a", "b", "c"]);
  expect(examplesStatus(some)).toContain("Checking example 2");
});
