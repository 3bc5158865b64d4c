import { describe, expect, it } from "vitest";

import { BLOCK_ROWS, blockAt, visibleRows } from "@/components/table/virtual-rows";

const HEIGHT = 31;
const SCREEN = 900;

describe("rowsInSight", () => {
  it("covers the screen anywhere in a long table, with few rows", () => {
    for (const above of [-500, 0, 1, HEIGHT, 12_345, 40_000, 86_015 * HEIGHT - SCREEN]) {
      const { first, end } = visibleRows(blockAt(above, HEIGHT), 86_015, HEIGHT, SCREEN);
      expect(first * HEIGHT).toBeLessThanOrEqual(Math.max(0, above));
      expect(end * HEIGHT).toBeGreaterThanOrEqual(above + SCREEN);
      expect(end - first).toBeLessThanOrEqual(SCREEN / HEIGHT + 2 + BLOCK_ROWS + 24);
    }
  });

  it("is stable within a block", () => {
    expect(blockAt(BLOCK_ROWS * HEIGHT - 1, HEIGHT)).toBe(blockAt(0, HEIGHT));
    expect(blockAt(BLOCK_ROWS * HEIGHT, HEIGHT)).toBe(1);
  });

  it("renders all rows of a short table and none of an empty one", () => {
    expect(visibleRows(0, 5, HEIGHT, SCREEN)).toEqual({ first: 0, end: 5 });
    expect(visibleRows(0, 0, HEIGHT, SCREEN)).toEqual({ first: 0, end: 0 });
  });

  it("never exceeds the end of a table that has become shorter", () => {
    const { first, end } = visibleRows(blockAt(1e6, HEIGHT), 40, HEIGHT, SCREEN);
    expect(first).toBeLessThan(40);
    expect(end).toBe(40);
  });
});
