import { expect, test } from "vitest";

import { findings } from "./findings";

const RUN = {
  name: "one",
  language_model: "lm",
  layer: 3,
  method: "mxd",
  text: "train.txt",
  target_tokens: 1000,
  k: 16,
  num_experts: 4096,
  indexed_tokens: null,
  active_experts: null,
};
const INDEXED = { ...RUN, indexed_tokens: 1_000_000 };
const metric = (name: string, value: number | null) =>
  ({ name, value, low: null, high: null, unit: "share", description: "" }) as const;
const evaluation = (inactive: number, densest: number) => ({
  tokens: 10_240,
  text: "held.txt",
  health: [metric("Inactive experts", inactive), metric("Highest density", densest), metric("Stable rank", 2)],
});

test("what calls for an action comes first, with the command for it", () => {
  const config = { "optimizer.learning_rate": 0.003, "text.on_short_text": "repeat" };
  const [first, second] = findings(evaluation(0.08, 0.9), RUN, config);
  expect([first?.level, second?.level]).toEqual(["act", "good"]);
  expect(first?.command).toBe(
    "mxd train lm --name one-balanced --layer 3 --method mxd --num-experts 4096 --k 16 --dataset train.txt --tokens 1000 --learning-rate 0.003 --on-short-text repeat --load-balance-weight 0.01",
  );
});

test("a small sample shows no dead experts, only inactive ones", () => {
  const [first] = findings(evaluation(0.5, 0.1), RUN);
  expect(first?.level).toBe("good");
  expect(first?.title).toBe("2,048 of 4,096 experts are inactive: 50.0 %");
  expect(first?.advice).toContain("none of the 10,240 evaluated tokens; an expert of average use is active on 40.");
  expect(first?.command).toBe("mxd index one --dataset train.txt --tokens 300000");
});

test("the index is the larger sample", () => {
  const [few] = findings(evaluation(0.5, 0.1), { ...INDEXED, active_experts: 4000 });
  expect([few?.level, few?.title]).toEqual(["good", "96 of 4,096 experts are dead: 2.3 % (upper limit 10 %)"]);
  expect(few?.advice).toContain("On the 10,240 evaluated tokens alone, 50.0 % are inactive.");
  const [many] = findings(evaluation(0.5, 0.1), { ...INDEXED, active_experts: 3000 });
  expect(many?.level).toBe("act");
  expect(many?.command).toContain("--num-experts 2048");
});

test("the sample of a finding is named, with its size", () => {
  const duplicates = {
    ...metric("Near-duplicate experts", 0.01),
    description: "cosine at least 0.95; a random sample of 1,000 of 4,096 experts, each compared with all others",
  };
  const [found] = findings({ ...evaluation(0, 0), health: [duplicates] }, RUN);
  expect(found?.title).toBe("10 of 1,000 sampled experts have a near-duplicate: 1.0 % (upper limit 5 %)");
  expect(found?.advice).toContain(
    "Measured on a random sample of 1,000 of 4,096 experts, each compared with all others.",
  );
});

test("the rank names a missing dimension and the rounding of the weights", () => {
  const normalised = {
    ...metric("Normalised rank", 0.98),
    description: "rank; mean over a random sample of 32 of 4,096 experts; weights as stored, rounded to 8 bits",
  };
  const advice = (scaling: number) =>
    findings({ ...evaluation(0, 0), health: [normalised, metric("Smallest |c|", scaling)] }, RUN)[0]?.advice;
  expect(advice(0)).toBe(
    "Experts are full linear maps, or nearly so. The smallest scaling entry |c| is 0: at least one expert lacks an output dimension. " +
      "The weights are rounded to 8 bits in storage, so small values differ from those in training. " +
      "Measured on a random sample of 32 of 4,096 experts.",
  );
  expect(advice(1e-8)).not.toContain("lacks");
});

test("a run with a balanced load gets ten times its weight", () => {
  const [first] = findings(evaluation(0, 0.9), RUN, { "regularization.load_balance_weight": 0.01 });
  expect(first?.command).toContain("--load-balance-weight 0.1");
});

test("a transcoder has features", () => {
  const [first] = findings(evaluation(0.5, 0.1), { ...RUN, method: "transcoder" });
  expect(first?.title).toBe("2,048 of 4,096 features are inactive: 50.0 %");
  expect(first?.advice).toContain("a feature of average use");
  expect(first?.experts?.label).toBe("Rarest active features");
});
