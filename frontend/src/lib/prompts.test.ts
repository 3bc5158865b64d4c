import { describe, expect, it } from "vitest";

import { excerpt, opening } from "./prompts";

const tokens = Array.from({ length: 60 }, (_, i) => ` w${i}`);
const context = { position: 30, tokens, token_ids: tokens.map((_, i) => i), active: [] };

describe("prompts from contexts", () => {
  it("keep the peak with its surroundings", () => {
    expect(excerpt(context).startsWith("w6 w7")).toBe(true);
    expect(excerpt(context).endsWith("w41 w42")).toBe(true);
  });

  it("end on the peak where a text is to go on", () => {
    expect(opening(context).endsWith("w29 w30")).toBe(true);
    expect(opening({ ...context, position: 0 })).toBe("w0");
  });
});
