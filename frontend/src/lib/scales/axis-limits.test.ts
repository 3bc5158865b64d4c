import { describe, expect, it } from "vitest";

import { axisLimit } from "./colour-scale";

describe("the limit of an axis", () => {
  it("is the next round number", () => {
    expect([8.5, 7.9, 0.43, 2.3, 10, 101].map(axisLimit)).toEqual([10, 8, 0.5, 2.5, 10, 150]);
  });

  it("is always positive", () => {
    expect([0, -1, Number.NaN].map(axisLimit)).toEqual([1, 1, 1]);
  });
});
