import { describe, expect, it } from "vitest";

import { BLOCK, blockAt, rowsInSight } from "./rows-in-sight";

const HEIGHT = 31;
const SCREEN = 900;

describe("rowsInSight", () => {
  it("covers the screen at every place of a long table, with few rows", () => {
    for (const above of [-500, 0, 1, HEIGHT, 12_345, 40_000, 86_015 * HEIGHT - SCREEN]) {
      const { first, end } = rowsInSight(blockAt(above, HEIGHT), 86_015, HEIGHT, SCREEN);
      expect(first * HEIGHT).toBeLessThanOrEqual(Math.max(0, above));
      expect(end * HEIGHT).toBeGreaterThanOrEqual(above + SCREEN);
      expect(end - first).toBeLessThanOrEqual(SCREEN / HEIGHT + 2 + BLOCK + 24);
    }
  });

  it("stays the same within a block", () => {
    expect(blockAt(BLOCK * HEIGHT - 1, HEIGHT)).toBe(blockAt(0, HEIGHT));
    expect(blockAt(BLOCK * HEIGHT, HEIGHT)).toBe(1);
  });

  it("draws all of a short table, and nothing of an empty one", () => {
    expect(rowsInSight(0, 5, HEIGHT, SCREEN)).toEqual({ first: 0, end: 5 });
    expect(rowsInSight(0, 0, HEIGHT, SCREEN)).toEqual({ first: 0, end: 0 });
  });

  it("never lies behind the end, where a table has become shorter", () => {
    const { first, end } = rowsInSight(blockAt(1e6, HEIGHT), 40, HEIGHT, SCREEN);
    expect(first).toBeLessThan(40);
    expect(end).toBe(40);
  });
});
