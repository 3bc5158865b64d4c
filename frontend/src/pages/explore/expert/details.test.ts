import { describe, expect, it } from "vitest";

import type { RoutingResponse } from "@/api/types";
import { findActivation } from "@/pages/explore/expert/details";

type Token = RoutingResponse["tokens"][number];

function token(text: string, experts: readonly (readonly [number, number])[], start = false): Token {
  const active = experts.map(([expert, activation]) => ({ expert, activation, share: 0 }));
  return { id: 1, text, start, experts: active };
}

const TOKENS = [token("<end>", [[7, 9]], true), token("a", [[3, 2], [7, 1]]), token("b", [[7, 4]]), token("c", [[3, 1]])]; // prettier-ignore

describe("an expert on a text", () => {
  it("has its activations, without the start token", () => {
    const { pieces, peak } = findActivation({ tokens: TOKENS }, 7);
    expect(pieces.map((piece) => piece.value)).toEqual([1, 4, null]);
    expect(peak).toBe(2);
  });

  it("has its rank among the active experts", () => {
    expect([...findActivation({ tokens: TOKENS }, 7).ranks]).toEqual([
      [1, [2, 2]],
      [2, [1, 1]],
    ]);
  });

  it("may be inactive", () => {
    expect(findActivation({ tokens: TOKENS }, 5).peak).toBeNull();
  });
});
