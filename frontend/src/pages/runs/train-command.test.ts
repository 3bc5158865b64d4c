import { expect, test } from "vitest";

import { trainCommand } from "./train-command";

const RUN = {
  name: "one",
  language_model: "lm",
  layer: 3,
  method: "mxd",
  text: "train.txt",
  target_tokens: 1000,
  k: 16,
  num_experts: 4096,
};

test("a command has the run's settings, except those at their defaults, and the changes", () => {
  const config = {
    "optimizer.learning_rate": 0.003,
    "optimizer.warmup_ratio": 0.05,
    "regularization.load_balance_weight": 0,
    "text.start_token": "<s>",
    rank: null,
    seed: 0,
  };
  expect(trainCommand(RUN, config, { "--name": "one-k{k}", "--k": "32,64" })).toBe(
    'mxd train lm --name "one-k{k}" --layer 3 --method mxd --num-experts 4096 --k 32,64 --dataset train.txt ' +
      '--tokens 1000 --start-token "<s>" --learning-rate 0.003 --seed 0',
  );
});

test("a changed setting replaces that of the run", () => {
  const config = { "regularization.load_balance_weight": 0.01 };
  const command = trainCommand(RUN, config, { "--load-balance-weight": "0.1" });
  expect(command.match(/--load-balance-weight \S+/g)).toEqual(["--load-balance-weight 0.1"]);
});
