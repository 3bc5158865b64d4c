import { expect, test } from "vitest";

import type { PrivacyResult } from "@/api/types";

import { privacyVerdict, removedShare } from "./privacy-verdict";

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
    protected: compared([0.6, 0.4], [0.1, 0.05]),
    variations: {},
    retained: { tokens: 12_288, loss_increase: added },
    relearning: null,
    ...changes,
  } as PrivacyResult;
}

test("effect and cost name their figures and samples", () => {
  const { effect, cost, limits } = privacyVerdict({ result: result() });
  expect(effect).toBe(
    "On the protected passages, the mean probability of the true next token falls from 40.0 % to 5.0 % (4 passages, 100 predictions).",
  );
  expect(cost).toBe(
    "The loss on the test part of the retain set rises by +0.010 nats per token (95 % interval +0.004 to +0.016, 12,288 tokens).",
  );
  expect(limits).toEqual([]);
});

test("the cost depends on where the interval lies", () => {
  const cost = (...interval: Parameters<typeof increase>) =>
    privacyVerdict({ result: result({}, increase(...interval)) }).cost;
  expect(cost(0.001, -0.004, 0.006)).toContain("does not change clearly");
  expect(cost(-0.01, -0.02, -0.001)).toContain("does not rise");
});

test("unprotected passages, rewritings and relearning are limits", () => {
  const variations = {
    given: compared([0.4, 0.2], [0.38, 0.19]),
    "swapped case": compared([0.4, 0.2], [0.1, 0.04]),
    unprotected: compared([0.5, 0.4], [0.45, 0.35]),
  };
  const relearning = {
    steps: 20,
    passages: 2,
    original: confidence(0.6, 0.4),
    protected: confidence(0.1, 0.05),
    attacked: confidence(0.4, 0.3),
    original_attacked: confidence(0.6, 0.4),
  };
  const { limits } = privacyVerdict({ result: result({ variations, relearning }) });
  expect(limits).toHaveLength(3);
  expect(limits[0]).toContain("Unprotected passages, which should stay predictable, change too: 40.0 % to 35.0 %");
  expect(limits[1]).toBe("Paraphrases are less protected: 20.0 % to 19.0 % (100 predictions).");
  expect(limits[2]).toBe(
    "Relearning restores part of it: 20 fine-tuning steps on 2 passages raise the other 2 from 5.0 % to 30.0 % (40.0 % before protection, 100 predictions).",
  );
});

test("the removed share is relative to the confidence before", () => {
  expect(removedShare(compared([0.6, 0.4], [0.15, 0.1]))).toBeCloseTo(0.75);
  expect(removedShare(compared([0, 0], [0, 0]))).toBe(0);
});
