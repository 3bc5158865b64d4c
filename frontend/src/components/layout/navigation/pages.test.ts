import { expect, test } from "vitest";

import { hasFrontier, placesOf } from "./pages";

const run = (layer: number, k: number, min_k: number | null = null, evaluated_k: readonly number[] = []) => ({
  language_model: "lm",
  layer,
  k,
  min_k,
  evaluated_k,
});

test("a frontier needs two K on one MLP", () => {
  expect(hasFrontier([])).toBe(false);
  expect(hasFrontier([run(3, 16), run(4, 32), run(3, 16)])).toBe(false);
  expect(hasFrontier([run(3, 16), run(3, 32)])).toBe(true);
  expect(hasFrontier([run(3, 16, 16)])).toBe(false);
  expect(hasFrontier([run(3, 16, 4)])).toBe(true);
  expect(hasFrontier([run(3, 16, null, [16])])).toBe(false);
  expect(hasFrontier([run(3, 16, null, [8, 16])])).toBe(true);
});

test("the page is in the navigation once there is a frontier", () => {
  const pages = (runs: Parameters<typeof placesOf>[0]) =>
    placesOf(runs).flatMap((group) => group.views.map(({ page }) => page));
  expect(pages([run(3, 16)])).not.toContain("frontier");
  expect(pages([run(3, 16), run(3, 32)])).toContain("frontier");
});
