import { expect, test } from "vitest";

import type { PrivacyResult } from "@/api/types";

import { privacyVerdict, lostShare } from "./privacy-verdict";

const confidence = (distance: number, trueToken: number, predictions = 100) => ({
  predictions,
  confidence_distance: distance,
  entropy: 0.2,
  top_five: 0.5,
  true_token: trueToken,
  divergence: 1,
  missing_entropy: 1,
});

const compared = (before: readonly [number, number], after: readonly [number, number]) => ({
  before: confidence(...before),
  after: confidence(...after),
});

const increase = (value: number, low: number, high: number) => ({ value, low, high });

function result(changes: Partial<PrivacyResult> = {}, added = increase(0.01, 0.004, 0.016)): PrivacyResult {
  return {
    passages: 4,
    parents: ["one"],
    protected: compared([0.6, 0.4], [0.1, 0.05]),
    variations: {},
    retained: {
      loss_increase: added,
      confidence: { before: confidence(0.5, 0.4, 12_192), after: confidence(0.5, 0.4, 12_192) },
    },
    relearning: null,
    passage_tokens: [],
    steps: 10,
    best_step: 8,
    ...changes,
  } as PrivacyResult;
}

const verdict = (found: PrivacyResult) => privacyVerdict({ result: found, skip_tokens: 1 });

test("effect and cost name their figures and samples", () => {
  const { title, effect, cost, limits } = verdict(result());
  expect(title).toBe("Probability of the true token with one: 40.0 % → 5.0 % on 4 chosen passages");
  expect(effect).toBe(
    "On the chosen passages, the mean probability of the true next token falls by 35.0 points (4 passages, 100 predictions; no interval, as the passages are not stored).",
  );
  expect(cost).toBe(
    "The change on other well-known passages was not measured. The loss on the test part of the retain set rises by +0.010 nats per token (95 % interval +0.004 to +0.016 over sequences, 12,192 predictions).",
  );
  expect(limits).toEqual([]);
});

test("stored passages give an interval over their scored predictions", () => {
  const token = (before: number, after: number) => ({ before: { probability: before }, after: { probability: after } });
  const tokens = [token(1, 1), token(0.5, 0.1), token(0.7, 0.1)];
  const found = result({ passage_tokens: [tokens] } as unknown as Partial<PrivacyResult>);
  expect(verdict(found).effect).toContain("; 95 % interval of the change −69.6 to −30.4 over predictions).");
});

test("the cost depends on where the interval lies", () => {
  const cost = (...interval: Parameters<typeof increase>) => verdict(result({}, increase(...interval))).cost;
  expect(cost(0.001, -0.004, 0.006)).toContain("does not change clearly");
  expect(cost(-0.01, -0.02, -0.001)).toContain("does not rise");
});

test("other passages are a cost; rewritings, relearning and the last step are limits", () => {
  const variations = {
    given: compared([0.4, 0.2], [0.38, 0.19]),
    "later beginning": compared([0.5, 0.3], [0.1, 0.04]),
    unprotected: compared([0.5, 0.4], [0.45, 0.35]),
  };
  const relearning = {
    steps: 20,
    passages: 2,
    original: confidence(0.6, 0.4),
    protected: confidence(0.1, 0.05),
    attacked: confidence(0.4, 0.3),
    original_attacked: confidence(0.6, 0.42),
  };
  const { title, cost, limits } = verdict(result({ variations, relearning, best_step: 10 }));
  expect(title).toContain("40.0 % → 5.0 % on 4 chosen passages, 40.0 % → 35.0 % on other passages");
  expect(cost).toContain(
    "On other passages, which should stay predictable, it also falls by 5.0 points (100 predictions; no interval, as only means are stored).",
  );
  expect(limits).toEqual([
    "Paraphrases: 20.0 % to 19.0 % (100 predictions), less affected.",
    "Later start, without the first third of the words: 30.0 % to 4.0 % (100 predictions).",
    "Relearning: 20 fine-tuning steps on 2 passages change the other 2 from 5.0 % to 30.0 %. Control: the same steps on the original run give 42.0 % (100 predictions).",
    "The last of the 10 steps was the best one, so more steps may have more effect.",
  ]);
});

test("the lost share is relative to the probability before", () => {
  expect(lostShare(compared([0.6, 0.4], [0.15, 0.1]))).toBeCloseTo(0.75);
  expect(lostShare(compared([0, 0], [0, 0]))).toBe(0);
});
