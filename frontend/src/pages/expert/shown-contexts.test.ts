import { describe, expect, it } from "vitest";

import type { Context } from "@/api/types";

import { AT_RANDOM } from "./expert-params";
import { asDrawn, shownOf, shownOfInterval } from "./shown-contexts";

const context = (rank: number): Context => ({
  interval: 2,
  rank,
  sequence: rank,
  position: 0,
  coefficient: 1,
  token_ids: [rank % 9],
  tokens: ["t"],
  active: [],
});
const TEN = Array.from({ length: 10 }, (_, rank) => context(rank));
const closed = { isOpen: false, locked: null };

describe("contexts on screen", () => {
  it("are a few until the group is opened", () => {
    expect(shownOf(TEN, { group: 2, ...closed })).toHaveLength(2);
    expect(shownOf(TEN, { group: 0, ...closed })).toHaveLength(7);
    expect(shownOf(TEN, { group: 2, isOpen: true, locked: null })).toHaveLength(10);
  });

  it("reach down to the locked one, in its own group alone", () => {
    const locked = { interval: 2, rank: 5, position: 0 };
    expect(shownOf(TEN, { group: 2, isOpen: false, locked })).toHaveLength(6);
    expect(shownOf(TEN, { group: 1, isOpen: false, locked })).toHaveLength(2);
  });

  it("are folded in an interval, and never at random", () => {
    expect(shownOfInterval(TEN, { group: 2, isOpen: true, locked: null })).toMatchObject({ left: 1 });
    const drawn = asDrawn(TEN);
    expect(shownOf(drawn, { group: AT_RANDOM, isOpen: true, locked: null })).toHaveLength(10);
    expect(drawn.map((one) => one.rank)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
});
