import { describe, expect, it } from "vitest";

import { columnOffsets, columnText, columnWidth, visibleColumns } from "./columns";

describe("a column header", () => {
  it("shows the token without its leading space, other white space as symbols", () => {
    expect([" may", "\n", "  ", "", "ing"].map(columnText)).toEqual(["may", "↵", "␣", "…", "ing"]);
  });

  it("is as wide as its token, within limits", () => {
    expect(columnWidth(" report")).toBe(58);
    expect(columnWidth(".")).toBe(36);
    expect(columnWidth("x".repeat(200))).toBe(132);
    expect(columnWidth("日本")).toBeGreaterThan(columnWidth("ab"));
  });
});

describe("visible columns", () => {
  const offsets = columnOffsets(Array.from({ length: 480 }, () => 30));

  it("are all columns of a short text", () => {
    expect(columnOffsets([10, 20])).toEqual([0, 10, 30]);
    expect(visibleColumns(columnOffsets([10, 20]), 0, 5)).toEqual({ from: 0, to: 2 });
  });

  it("are whole chunks around the view", () => {
    expect(visibleColumns(offsets, 0, 900)).toEqual({ from: 0, to: 72 });
    const middle = visibleColumns(offsets, 240 * 30, 270 * 30);
    expect(middle.from).toBeLessThanOrEqual(240 - 24);
    expect(middle.to).toBeGreaterThanOrEqual(270 + 24);
    expect(visibleColumns(offsets, 480 * 30, 500 * 30)).toEqual({ from: 456, to: 480 });
  });
});
