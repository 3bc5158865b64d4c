import { describe, expect, it } from "vitest";

import type { RoutingResponse, TokenEvent } from "@/api/types";
import type { EditMode, StrengthEdit } from "@/lib/edits/edits";
import { NO_GENERATION } from "./texts/generation";

import { describeStrength, editScale, hasNoEffect, measureActivity } from "./edit-notes";

const COMPARED = {
  row: { max_activation: 5, p99: 4, steerability: 0.002 },
  small_below: null,
};
const described = (mode: EditMode, strength: number) => describeStrength(mode, strength, COMPARED);

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
    expect(described("add", 2.5)).toEqual({
      text: "Adds 10.0 on each edited token (2.5 × p99). The largest in the index is 5.0.",
      isWarning: false,
    });
    expect(described("add", -1).text).toBe(
      "Subtracts 4.0 on each edited token (1.0 × p99). The largest in the index is 5.0.",
    );
    expect(described("set", 0.5).text).toBe(
      "Sets its activation to 2.0 on each edited token (0.5 × p99). The largest in the index is 5.0.",
    );
    expect(described("add", 1.75).text).toContain("Adds 7.0 on each edited token (1.75 × ");
    expect(described("scale", 8).text).toBe("");
    expect(describeStrength("add", 4, null).text).toBe("");
  });

  it("warns of strengths that hardly change a text, and of those that may break it", () => {
    const weak = { ...COMPARED, small_below: 4.5 };
    expect(describeStrength("add", -2, weak).text).toMatch(/^Low steerability: about 0.008 nats per token/);
    expect(describeStrength("add", -4.5, weak).isWarning).toBe(false);
    expect(describeStrength("add", 4.1, weak)).toMatchObject({
      text: expect.stringContaining("may break the text") as string,
      isWarning: true,
    });
    expect(described("add", 4).isWarning).toBe(false);
    expect(described("add", -8).isWarning).toBe(false);
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
