import { describe, expect, it } from "vitest";

import type { StrengthSweepDoneEvent, SteeringRequest } from "@/api/types";

import { describeSample, describeScore, sweepKey, sweepRequest, rowsSoFar, verdict } from "./sweep";

const REQUEST = {
  prompt: "It",
  edits: [
    { expert: 1, mode: "scale", strength: 3 },
    { expert: 2, mode: "add", strength: 1, when: { first: 20 } },
    { expert: 2, mode: "add", strength: 1, run: "other" },
  ],
  sampling: { max_tokens: 64, samples: 1, seed: 5, stop: [] },
} as unknown as SteeringRequest;
const EDIT = { expert: 2, mode: "add", strength: 4 } as const;
const NONE = { steered: 0.01, control: 0.01, standard_error: 0.01, exceeds_control: false };
const SHOWN = { steered: 0.2, control: 0.02, standard_error: 0.03, exceeds_control: true };

function done(suggested: number | null, ratios: readonly number[], exceeds: boolean): StrengthSweepDoneEvent {
  const points = ratios.map((ratio, strength) => ({
    strength,
    perplexity_ratio: ratio,
    activation: NONE,
    promoted: { ...SHOWN, exceeds_control: exceeds && strength > 0 },
  }));
  return { suggested, points } as unknown as StrengthSweepDoneEvent;
}

describe("a strength sweep", () => {
  it("is the same request, shortened, with one edit at every strength", () => {
    const request = sweepRequest(REQUEST, EDIT);
    expect(request.edit).toBe(1);
    expect(request.edits?.[1]).toMatchObject({ strength: 1, when: { first: 20 } });
    expect(request.strengths).toEqual([0, 1, 2, 3, 4, 6, 8]);
    expect(request.sampling).toMatchObject({ max_tokens: 24, samples: 4, seed: 5 });
    expect(sweepRequest(REQUEST, { ...EDIT, run: "other" }).edit).toBe(2);
  });

  it("has a cache key independent of the edit's strength", () => {
    expect(sweepKey(REQUEST, EDIT)).toBe(sweepKey(REQUEST, { ...EDIT, strength: 1 }));
    expect(sweepKey({ ...REQUEST, prompt: "So" }, EDIT)).not.toBe(sweepKey(REQUEST, EDIT));
  });

  it("names a measure that is large enough to count", () => {
    const small = { steered: 0.031, control: 0, standard_error: 0.001, exceeds_control: false };
    const point = { strength: 1, perplexity_ratio: 1, activation: SHOWN, promoted: small };
    const sentence = verdict({ suggested: 1, points: [point] } as unknown as StrengthSweepDoneEvent, String);
    expect(sentence).toContain(
      "here the mean activation, clearly exceeds the control’s, at a perplexity of at most × 3. The score is 20\u00a0%",
    );
  });

  it("has a row for every strength before its texts arrive", () => {
    const text = { strength: 1, text: " so", control_text: " if", kl: 0.1, perplexity_ratio: 1.2 };
    expect(rowsSoFar([0, 1, 2], [text])).toEqual([{ strength: 0 }, text, { strength: 2 }]);
  });

  it("ends in a sentence with its interval, or with the reason for no suggestion", () => {
    const describeStrength = (strength: number) => `+ ${strength}`;
    expect(describeScore(SHOWN)).toBe("20\u00a0% (control 2.0\u00a0%, difference +18.0 ± 6.0)");
    expect(verdict(done(1, [1, 1.4], true), describeStrength)).toBe(
      "+ 1 is the smallest strength at which a concept score, here the share of promoted tokens, clearly exceeds the " +
        "control’s, at a perplexity of at most × 3. The score is 20\u00a0% (control 2.0\u00a0%, difference +18.0 ± 6.0), at perplexity × 1.4. " +
        "No other strength within this limit scores higher.",
    );
    expect(verdict(done(null, [1, 3.4], true), describeStrength)).toContain(
      "first shows at + 1, where perplexity is × 3.4",
    );
    expect(verdict(done(null, [1, 1.1], false), describeStrength)).toContain("at none of them");
  });

  it("names the largest score within the perplexity limit", () => {
    const at = (strength: number, perplexity_ratio: number, steered: number) => ({
      strength,
      perplexity_ratio,
      activation: NONE,
      promoted: { ...SHOWN, steered },
    });
    const points = [at(2, 2, 0.07), at(4, 1.5, 0.15), at(8, 4, 0.3)];
    expect(verdict({ suggested: 2, points } as unknown as StrengthSweepDoneEvent, String)).toContain(
      "The largest within this limit is 15\u00a0% at 4, at perplexity × 1.5.",
    );
  });

  it("says how many texts and tokens were measured", () => {
    expect(describeSample(REQUEST)).toContain("4 texts of up to 24 tokens");
    expect(describeSample({ ...REQUEST, sampling: { max_tokens: 8 } })).toContain("up to 8 tokens");
  });
});
