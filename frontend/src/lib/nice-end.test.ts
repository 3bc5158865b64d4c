import { describe, expect, it } from "vitest";

import { niceEnd } from "./nice-end";

describe("the end of a scale", () => {
  it("is the next round number", () => {
    expect([8.5, 7.9, 0.43, 2.3, 10, 101].map(niceEnd)).toEqual([10, 8, 0.5, 2.5, 10, 150]);
  });

  it("is never nothing", () => {
    expect([0, -1, Number.NaN].map(niceEnd)).toEqual([1, 1, 1]);
  });
});
