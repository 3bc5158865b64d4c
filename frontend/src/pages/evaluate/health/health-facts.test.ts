import { expect, test } from "vitest";

import type { Fact } from "@/api/types";

import { healthFacts } from "./health-facts";

const fact = (name: string, value: number | null, group: string): Fact => ({
  name,
  value,
  unit: "plain",
  description: "of an expert, beside other experts",
  group,
});

const facts = (alwaysOn: number) => [
  fact("Always-on experts", alwaysOn, "Always-on experts"),
  fact("Share of activation", 0.1, "Always-on experts"),
  fact("Stable rank", null, "Similarity and rank"),
];
const named = (found: readonly Fact[]) => found.map(({ name }) => name);

test("metrics that do not apply are left out", () => {
  expect(named(healthFacts(facts(0), { method: "mxd" }))).toEqual(["Always-on experts"]);
  expect(named(healthFacts(facts(2), { method: "mxd" }))).toEqual(["Always-on experts", "Share of activation"]);
});

test("a transcoder has features", () => {
  const [found] = healthFacts(facts(1), { method: "transcoder" });
  expect(found).toMatchObject({
    name: "Always-on features",
    group: "Always-on features",
    description: "of a feature, beside other features",
  });
});
