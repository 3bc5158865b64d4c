import { describe, expect, it } from "vitest";

import type { TokenEvent } from "@/api/types";

import { type DosePoint, doseKey, dosePoint, doseRequest, nearestDose, suggestedDose } from "./dose";

const REQUEST = {
  prompt: "It",
  edits: [
    { expert: 1, mode: "scale", strength: 3 },
    { expert: 2, mode: "add", strength: 1 },
  ],
  apply: "on-top",
  scope: "all",
  sampling: { max_tokens: 64, samples: 1, seed: 5, stop: [] },
} as unknown as Parameters<typeof doseRequest>[0];
const EDIT = { expert: 2, mode: "add", strength: 1 } as const;

const token = (more: Partial<TokenEvent>) =>
  ({ sample: 0, text: "a", probability: 0.5, delta_log_probability: 0, kl: 0, ...more }) as TokenEvent;
const point = (strength: number, effect: number, cost: number): DosePoint => ({ strength, effect, cost, text: "" });

describe("a dose", () => {
  it("is the same request with one edit at another strength, cut short", () => {
    const request = doseRequest(REQUEST, EDIT, 6);
    expect(request.edits?.map((edit) => edit.strength)).toEqual([3, 6]);
    expect(request.sampling).toMatchObject({ max_tokens: 24, samples: 2, seed: 5 });
  });

  it("has a key that all strengths of an edit share", () => {
    const stronger = { ...REQUEST, edits: [REQUEST.edits?.[0], { ...EDIT, strength: 4 }] } as typeof REQUEST;
    expect(doseKey(REQUEST, EDIT)).toBe(doseKey(stronger, { ...EDIT, strength: 4 }));
    expect(doseKey({ ...REQUEST, prompt: "So" }, EDIT)).not.toBe(doseKey(REQUEST, EDIT));
  });

  it("has the mean KL as effect and the ratio of perplexities as cost", () => {
    const tokens = [
      token({ arm: "default", probability: 0.5 }),
      token({ arm: "steered", probability: 0.5, delta_log_probability: Math.log(2), kl: 0.4, text: "b" }),
      token({ arm: "steered", probability: 0.5, delta_log_probability: Math.log(2), kl: 0.8, text: "c" }),
      token({ arm: "steered", sample: 1, probability: 0.25, text: "other" }),
    ];
    const found = dosePoint(3, tokens);
    expect(found.effect).toBeCloseTo(0.4);
    expect(found.cost).toBeCloseTo(2);
    expect(found.text).toBe("bc");
    expect(dosePoint(0, [])).toEqual({ strength: 0, effect: 0, cost: 1, text: "" });
  });
});

describe("the suggested dose", () => {
  it("is the strongest before the first that costs too much", () => {
    const points = [point(0, 0, 1), point(1, 0.1, 1.1), point(2, 0.4, 1.4), point(4, 1, 3), point(8, 3, 1.2)];
    expect(suggestedDose(points, 0)).toBe(2);
  });

  it("is measured against the text that the other edits make", () => {
    const points = [point(0, 0.5, 3), point(1, 0.5, 2.9), point(2, 0.8, 4), point(4, 1, 9)];
    expect(suggestedDose(points, 0)).toBe(2);
    expect(suggestedDose([point(0, 2, 9), ...points.map((p) => ({ ...p, strength: p.strength + 1 }))], 1)).toBe(3);
  });

  it("is none where nothing shows, or all costs too much", () => {
    expect(suggestedDose([point(0, 0, 1), point(8, 0.01, 1)], 0)).toBeNull();
    expect(suggestedDose([point(0, 0, 1), point(1, 2, 5)], 0)).toBeNull();
    expect(suggestedDose([], 0)).toBeNull();
  });

  it("is compared with the dose nearest to what is set", () => {
    expect(nearestDose([point(0, 0, 1), point(4, 1, 2)], 3.1)?.strength).toBe(4);
    expect(nearestDose([], 3)).toBeNull();
  });
});
