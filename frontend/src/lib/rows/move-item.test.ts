import { describe, expect, it } from "vitest";

import { moveItem } from "./move-item";

describe("moveItem", () => {
  it("preserves the order of the others", () => {
    expect(moveItem([1, 2, 3, 4], 2, 0)).toEqual([3, 1, 2, 4]);
    expect(moveItem([1, 2, 3, 4], 0, 3)).toEqual([2, 3, 4, 1]);
  });

  it("clamps to the ends", () => {
    expect(moveItem([1, 2], 0, -1)).toEqual([1, 2]);
    expect(moveItem([1, 2], 1, 9)).toEqual([1, 2]);
    expect(moveItem([], 0, 1)).toEqual([]);
  });
});
