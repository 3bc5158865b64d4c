import { expect, test } from "vitest";

import { meanChange, unsteeredPerplexity } from "./token-means";

const TOKENS = [
  { probability: 0.5, delta_log_probability: Math.log(2) },
  { probability: 0.5, delta_log_probability: 0 },
];

test("the mean change is in nats", () => {
  expect(meanChange(TOKENS)).toBeCloseTo(Math.log(2) / 2);
});

test("perplexity is that without the edit", () => {
  expect(unsteeredPerplexity(TOKENS, "baseline")).toBeCloseTo(2);
  // Without the edit the tokens have probabilities 1/4 and 1/2.
  expect(unsteeredPerplexity(TOKENS, "steered")).toBeCloseTo(Math.sqrt(8));
});
