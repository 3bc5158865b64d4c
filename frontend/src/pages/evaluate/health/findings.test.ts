import { expect, test } from "vitest";

import { findings } from "./findings";

const RUN = { name: "one", language_model: "lm", layer: 3, text: "train.txt", k: 16, num_experts: 4096 };
const metric = (name: string, value: number | null) =>
  ({ name, value, low: null, high: null, unit: "share", description: "" }) as const;
const evaluation = (dead: number, densest: number) => ({
  tokens: 10_240,
  text: "held.txt",
  health: [metric("Dead experts", dead), metric("Highest density", densest), metric("Stable rank", 2)],
});

test("what calls for an action comes first, with the command for it", () => {
  const [first, second] = findings(evaluation(0.08, 0.9), RUN);
  expect([first?.level, second?.level]).toEqual(["act", "good"]);
  expect(first?.command).toBe("mxd train lm --layer 3 --dataset train.txt --k 16 --load-balance-weight 0.01");
  expect(second?.title).toBe("8.0 % of the experts are dead");
});

test("dead experts are measured on more tokens before anything is trained again", () => {
  const [first] = findings(evaluation(0.5, 0.1), RUN);
  expect(first?.command?.split("\n")).toEqual([
    "mxd evaluate one --dataset held.txt --tokens 40960",
    "mxd train lm --layer 3 --dataset train.txt --k 16 --num-experts 2048",
  ]);
});
