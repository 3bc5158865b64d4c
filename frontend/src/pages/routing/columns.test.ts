import { describe, expect, it } from "vitest";

import { columnOffsets, columnText, columnWidth, windowOf } from "./columns";

describe("the head of a column", () => {
  it("shows the token without the space in front, and other white space as signs", () => {
    expect([" may", "\n", "  ", "", "ing"].map(columnText)).toEqual(["may", "↵", "␣", "…", "ing"]);
  });

  it("is as wide as its token, within bounds", () => {
    expect(columnWidth(" report")).toBe(56);
    expect(columnWidth(".")).toBe(29);
    expect(columnWidth("x".repeat(200))).toBe(132);
    expect(columnWidth("日本")).toBeGreaterThan(columnWidth("ab"));
  });
});

describe("the columns in view", () => {
  const offsets = columnOffsets(Array.from({ length: 480 }, () => 30));

  it("are all of them where there are few", () => {
    expect(columnOffsets([10, 20])).toEqual([0, 10, 30]);
    expect(windowOf(columnOffsets([10, 20]), 0, 5)).toEqual({ from: 0, to: 2 });
  });

  it("are whole chunks around the view", () => {
    expect(windowOf(offsets, 0, 900)).toEqual({ from: 0, to: 72 });
    const middle = windowOf(offsets, 240 * 30, 270 * 30);
    expect(middle.from).toBeLessThanOrEqual(240 - 24);
    expect(middle.to).toBeGreaterThanOrEqual(270 + 24);
    expect(windowOf(offsets, 480 * 30, 500 * 30)).toEqual({ from: 456, to: 480 });
  });
});
