import { describe, expect, it } from "vitest";

import { moved } from "./order";

describe("putting one thing elsewhere", () => {
  it("keeps the others in their order", () => {
    expect(moved([1, 2, 3, 4], 2, 0)).toEqual([3, 1, 2, 4]);
    expect(moved([1, 2, 3, 4], 0, 3)).toEqual([2, 3, 4, 1]);
  });

  it("stops at the ends", () => {
    expect(moved([1, 2], 0, -1)).toEqual([1, 2]);
    expect(moved([1, 2], 1, 9)).toEqual([1, 2]);
    expect(moved([], 0, 1)).toEqual([]);
  });
});
