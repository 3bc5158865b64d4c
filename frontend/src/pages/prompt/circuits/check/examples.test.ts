import { expect, test } from "vitest";

import { type Example, examplesStatus, nextToCheck } from "./examples";
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

test("the status counts the graphs that pass, and those with reservations", () => {
  const done = [example("a", "bad"), example("b", "weak"), example("c", null), example("d", "good")];
  expect(examplesStatus(done)).toMatch(
    /^2 of 4 checked graphs did not fail .*, 1 with reservations\. .* were selected/,
  );
  expect(examplesStatus([example("a", "weak"), example("b", "bad")])).toContain("1 of 2 checked graphs did not fail");
  expect(examplesStatus([example("a", "weak"), example("b", "bad")])).toContain("all with reservations");
  expect(examplesStatus([example("a", "good")])).not.toContain("reservations");
});

test("while they are checked, the progress is shown", () => {
  const some = [example("a", "bad"), example("b"), example("c"), example("d")];
  expect(examplesStatus(some)).toContain("Checking example 2");
});
