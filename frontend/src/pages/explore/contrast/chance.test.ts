import { expect, test } from "vitest";

import { controlFails } from "./chance";

const withChance = (mean_found: number) => ({
  chance: { shuffles: 20, shuffles_with_any: 9, mean_found, most_found: 450, covered: 0.91 },
  found_a: 187,
  found_b: 299,
});

test("the control fails if chance may explain more than 5 % of the found experts", () => {
  expect(controlFails(withChance(44.5))).toBe(true);
  expect(controlFails(withChance(24))).toBe(false);
  expect(controlFails({ ...withChance(0), found_a: 0, found_b: 0 })).toBe(false);
});
