import { describe, expect, it } from "vitest";

import type { DoseDoneEvent, SteeringRequest } from "@/api/types";

import { doseKey, dosePoints, doseRequest, nearestDose } from "./dose";

const REQUEST = {
  prompt: "It",
  edits: [
    { expert: 1, mode: "scale", strength: 3 },
    { expert: 2, mode: "add", strength: 1 },
    { expert: 2, mode: "add", strength: 1, run: "other" },
  ],
  sampling: { max_tokens: 64, samples: 1, seed: 5, stop: [] },
} as unknown as SteeringRequest;
const EDIT = { expert: 2, mode: "add", strength: 4 } as const;

describe("a strength sweep", () => {
  it("is the same request, shortened, with one edit at every strength", () => {
    const request = doseRequest(REQUEST, EDIT);
    expect(request.edit).toBe(1);
    expect(request.strengths).toEqual([0, 1, 2, 3, 4, 6, 8]);
    expect(request.sampling).toMatchObject({ max_tokens: 24, samples: 3, seed: 5 });
    expect(doseRequest(REQUEST, { ...EDIT, run: "other" }).edit).toBe(2);
  });

  it("has a cache key independent of the edit's strength", () => {
    expect(doseKey(REQUEST, EDIT)).toBe(doseKey(REQUEST, { ...EDIT, strength: 1 }));
    expect(doseKey({ ...REQUEST, prompt: "So" }, EDIT)).not.toBe(doseKey(REQUEST, EDIT));
  });

  it("measures cost as relative perplexity", () => {
    const done = {
      baseline_loss: 3,
      points: [
        { strength: 0, kl: 0, lift: 0, loss: 3, text: "a" },
        { strength: 4, kl: 0.7, lift: 0.2, loss: 3 + Math.log(2), text: "b" },
      ],
    } as unknown as DoseDoneEvent;
    const points = dosePoints(done);
    expect(points[0]?.cost).toBeCloseTo(1);
    expect(points[1]?.cost).toBeCloseTo(2);
    expect(nearestDose(points, 3)?.text).toBe("b");
    expect(nearestDose([], 3)).toBeNull();
  });
});
