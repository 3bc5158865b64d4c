import { describe, expect, it } from "vitest";

import type { RoutingResponse, TokenEvent } from "@/api/types";
import type { StrengthEdit } from "@/lib/edits/edits";
import { NO_GENERATION } from "./texts/generation";

import { describeStrength, editScale, hasNoEffect, isExcessive, measureActivity } from "./edit-notes";

const STATISTICS = { max_activation: 5, p99: 4 };

describe("the slider of an edit", () => {
  it("is neutral where the edit has no effect", () => {
    const scaleOf = (mode: StrengthEdit["mode"], strength = 2) => editScale({ expert: 1, mode, strength });
    expect(scaleOf("scale")).toMatchObject({ min: 0, max: 8, neutral: 1, sign: "×" });
    expect(scaleOf("add")).toMatchObject({ min: -4, max: 4, neutral: 0, sign: "+" });
    expect(scaleOf("set")).toMatchObject({ min: 0, max: 4, neutral: 0, sign: "=" });
    expect(scaleOf("add", -6.5)).toMatchObject({ min: -7, max: 7 });
    expect(scaleOf("scale").ticks.map(({ label }) => label)).toEqual(["0", "×1", "×8"]);
  });

  it("describes the strength as an activation", () => {
    expect(describeStrength("add", 2.5, STATISTICS)).toBe(
      "Adds 10.0 on each edited token (2.5 × p99). The largest in the index is 5.0.",
    );
    expect(describeStrength("add", -1, STATISTICS)).toBe(
      "Subtracts 4.0 on each edited token (1.0 × p99). The largest in the index is 5.0.",
    );
    expect(describeStrength("set", 0.5, STATISTICS)).toBe(
      "Sets its activation to 2.0 on each edited token (0.5 × p99). The largest in the index is 5.0.",
    );
    expect(describeStrength("add", 1.75, STATISTICS)).toContain("Adds 7.0 on each edited token (1.75 × ");
    expect(describeStrength("scale", 4, STATISTICS)).toBe("");
    expect(describeStrength("add", 4, null)).toBe("");
  });

  it("warns of an expert that hardly changes a text", () => {
    const weak = { ...STATISTICS, steerability: 0.002 };
    expect(describeStrength("add", 2, weak)).toMatch(/^Low steerability: about 0.008 nats per token/);
    expect(describeStrength("add", 6, weak)).not.toContain("Low steerability");
    expect(describeStrength("scale", 2, weak)).toBe("");
  });

  it("is excessive above the largest activation and the strengths common for steering", () => {
    expect(isExcessive("add", 3, STATISTICS)).toBe(false);
    expect(isExcessive("set", 6.1, STATISTICS)).toBe(true);
    expect(isExcessive("add", 6.1, { ...STATISTICS, max_activation: 40 })).toBe(false);
    expect(isExcessive("add", -8, STATISTICS)).toBe(false);
    expect(isExcessive("scale", 8, STATISTICS)).toBe(false);
    expect(describeStrength("add", 7, STATISTICS)).toContain("may break the text");
  });
});

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
