import { describe, expect, it } from "vitest";

import type { RoutingResponse, TokenEvent } from "@/api/types";
import { NO_GENERATION } from "@/pages/steer/steering/texts/generation";

import { measureActivity, hasNoEffect } from "./activity";

const active = (...experts: number[]) => experts.map((expert) => ({ expert, activation: 1, share: 1 }));
const routing = {
  tokens: [
    { start: true, experts: active(5) },
    { start: false, experts: active(7) },
  ],
} as unknown as RoutingResponse;
const steered = {
  ...NO_GENERATION.steered,
  continuations: [
    {
      pieces: [],
      tokens: [
        { position: 0, experts: active(7) },
        { position: 1, experts: active(9) },
      ] as unknown as TokenEvent[],
    },
  ],
};

describe("activity of an edited expert", () => {
  it("counts tokens of the prompt and of the text, without the start token", () => {
    expect(measureActivity(5, routing, steered)).toEqual({ inPrompt: 0, inText: 0 });
    expect(measureActivity(7, routing, steered)).toEqual({ inPrompt: 1, inText: 0 });
    expect(measureActivity(9, routing, steered)).toEqual({ inPrompt: 0, inText: 1 });
    expect(measureActivity(9, undefined, steered)).toBeNull();
  });

  it("matters to scaling and ablating only", () => {
    const none = { inPrompt: 0, inText: 0 };
    expect(hasNoEffect({ expert: 5, mode: "scale", strength: 4 }, none)).toBe(true);
    expect(hasNoEffect({ expert: 5, mode: "add", strength: 4 }, none)).toBe(false);
    expect(hasNoEffect({ expert: 5, mode: "ablate", strength: 1 }, { inPrompt: 1, inText: 0 })).toBe(false);
    expect(hasNoEffect({ expert: 5, mode: "scale", strength: 4 }, null)).toBe(false);
  });
});
