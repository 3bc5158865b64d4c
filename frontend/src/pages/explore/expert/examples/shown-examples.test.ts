import { describe, expect, it } from "vitest";

import type { Example } from "@/api/types";
import { RANDOM_GROUP } from "@/pages/explore/expert/expert-params";

import { asRandomGroup, selectShown, selectShownInBin } from "./shown-examples";

const example = (rank: number): Example => ({
  bin: 2,
  rank,
  sequence: rank,
  position: 0,
  activation: 1,
  token_ids: [rank % 9],
  tokens: ["t"],
  active: [],
});
const TEN = Array.from({ length: 10 }, (_, rank) => example(rank));
const closed = { isOpen: false, locked: null };

describe("shown examples", () => {
  it("are a few until the group is expanded", () => {
    expect(selectShown(TEN, { group: 2, ...closed })).toHaveLength(2);
    expect(selectShown(TEN, { group: 0, ...closed })).toHaveLength(8);
    expect(selectShown(TEN, { group: 2, isOpen: true, locked: null })).toHaveLength(10);
  });

  it("include the locked one, in its own group only", () => {
    const locked = { bin: 2, rank: 5, position: 0 };
    expect(selectShown(TEN, { group: 2, isOpen: false, locked })).toHaveLength(6);
    expect(selectShown(TEN, { group: 1, isOpen: false, locked })).toHaveLength(2);
  });

  it("are deduplicated in bins but not in the random sample", () => {
    expect(selectShownInBin(TEN, { group: 2, isOpen: true, locked: null })).toMatchObject({ numDuplicates: 1 });
    const drawn = asRandomGroup(TEN);
    expect(selectShown(drawn, { group: RANDOM_GROUP, isOpen: true, locked: null })).toHaveLength(10);
    expect(new Set(drawn.map((one) => one.bin))).toEqual(new Set([RANDOM_GROUP]));
    expect(drawn.map((one) => one.rank)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
});
