import { describe, expect, it } from "vitest";

import type { SteeringRequest, StrengthSweepText } from "@/api/types";

import { describeSample, describeScore, editsAt, sweepKey, sweepRequest, rowsSoFar, SWEEP_STRENGTHS } from "./sweep";

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
const SHOWN = { steered: 0.2, control: 0.02, standard_error: 0.03, clear_from: 0.08, exceeds_control: true };

const FEW = { strengths: SWEEP_STRENGTHS.add, samples: 4 };

describe("a strength sweep", () => {
  it("is the same request, shortened, with one edit at every strength", () => {
    const request = sweepRequest(REQUEST, EDIT, FEW);
    expect(request.edit).toBe(1);
    expect(request.edits?.[1]).toMatchObject({ strength: 1, when: { first: 20 } });
    expect(request.strengths).toEqual([0, 1, 1.5, 2, 2.5, 3, 4]);
    expect(request.sampling).toMatchObject({ max_tokens: 24, samples: 4, seed: 5 });
    expect(sweepRequest(REQUEST, { ...EDIT, run: "other" }, FEW).edit).toBe(2);
  });

  it("has a cache key independent of the edit's strength", () => {
    expect(sweepKey(REQUEST, EDIT, FEW)).toBe(sweepKey(REQUEST, { ...EDIT, strength: 1 }, FEW));
    expect(sweepKey({ ...REQUEST, prompt: "So" }, EDIT, FEW)).not.toBe(sweepKey(REQUEST, EDIT, FEW));
    expect(sweepKey(REQUEST, EDIT, { ...FEW, samples: 12 })).not.toBe(sweepKey(REQUEST, EDIT, FEW));
  });

  it("changes one edit of the tray", () => {
    const other = { expert: 1, mode: "scale", strength: 3 } as const;
    expect(editsAt([other, EDIT], EDIT, 2)).toEqual([other, { ...EDIT, strength: 2 }]);
  });

  it("has a row for every strength before its texts arrive", () => {
    const unscored = { activation: null, promoted: null };
    const text: StrengthSweepText = {
      strength: 1,
      text: " so",
      control_text: " if",
      kl: 0.1,
      perplexity_ratio: 1.2,
      is_fluent: true,
      ...unscored,
    };
    expect(rowsSoFar([0, 1, 2], {})).toEqual([{ strength: 0 }, { strength: 1 }, { strength: 2 }]);
    const early = { strength: 1, text: " so", control_text: " if", kl: 0.1 };
    expect(rowsSoFar([0, 1], { texts: [text], tokens: 49, total: 100 })).toEqual([{ strength: 0 }, early]);
    expect(rowsSoFar([0, 1], { texts: [text], tokens: 50, total: 100 })).toEqual([{ strength: 0 }, text]);
  });

  it("describes a score with the limit from which it is clear", () => {
    expect(describeScore(SHOWN)).toBe(
      "20\u00a0% (random expert 2.0\u00a0%, clear from 8.0\u00a0%, difference +18.0 ± 6.0)",
    );
  });

  it("says how many texts and tokens were measured", () => {
    expect(describeSample(REQUEST, 4)).toContain("4 texts of up to 24 tokens");
    expect(describeSample({ ...REQUEST, sampling: { max_tokens: 8 } }, 12)).toContain("up to 8 tokens");
  });
});
