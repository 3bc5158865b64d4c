import { describe, expect, it, test } from "vitest";

import type { Example } from "@/api/types";

import { RANDOM_GROUP } from "./expert-params";
import { asRandomGroup, deduplicate, selectShown, selectShownInBin, weakerBins, withoutShown } from "./shown-examples";

function example(rank: number, ids: readonly number[], position: number): Example {
  const tokens = ids.map(String);
  return { bin: 0, rank, sequence: rank, position, activation: 1, token_ids: [...ids], tokens, active: [] };
}

const LONG = Array.from({ length: 40 }, (_, i) => i);

describe("folding", () => {
  it("keeps the first of examples with the same text around their peak", () => {
    const other = LONG.map((id, i) => (i === 39 ? 99 : id));
    const { examples, numDuplicates } = deduplicate([
      example(0, LONG, 20),
      example(1, other, 20),
      example(2, LONG, 21),
    ]);
    expect(examples.map((one) => one.rank)).toEqual([0, 2]);
    expect(numDuplicates).toBe(1);
  });

  it("leaves out what is shown above", () => {
    const twice = [example(0, [1, 2], 0), example(1, [1, 3], 0), example(2, [1, 3], 0)];
    expect(deduplicate(twice, [example(9, [1, 2], 0)]).examples.map((one) => one.rank)).toEqual([1]);
    expect(withoutShown(twice, [example(9, [1, 2], 0)]).map((one) => one.rank)).toEqual([1, 2]);
  });

  it("leaves out another peak of a sentence shown above", () => {
    const above = { ...example(3, LONG, 20), bin: 0 };
    const near = { ...example(0, LONG, 24), bin: 2, sequence: 3 };
    const far = { ...example(1, LONG, 35), bin: 2, sequence: 3 };
    expect(deduplicate([near, far], [above]).examples).toEqual([far]);
  });

  it("keeps different ones", () => {
    expect(deduplicate([example(0, [1, 2], 0), example(1, [1, 3], 0)]).numDuplicates).toBe(0);
  });
});

const TEN = Array.from({ length: 10 }, (_, rank) => ({ ...example(rank, [rank % 9], 0), bin: 2 }));
const closed = { isOpen: false, locked: null, preview: 2 };

describe("shown examples", () => {
  it("are a few until the group is expanded", () => {
    expect(selectShown(TEN, { group: 2, ...closed })).toHaveLength(2);
    expect(selectShown(TEN, { group: 0, ...closed, preview: 8 })).toHaveLength(8);
    expect(selectShown(TEN, { group: 2, ...closed, isOpen: true })).toHaveLength(10);
  });

  it("include the locked one, in its own group only", () => {
    const locked = { bin: 2, rank: 5, position: 0 };
    expect(selectShown(TEN, { group: 2, ...closed, locked })).toHaveLength(6);
    expect(selectShown(TEN, { group: 1, ...closed, locked })).toHaveLength(2);
  });

  it("are deduplicated in bins but not in the random sample", () => {
    expect(selectShownInBin(TEN, { group: 2, ...closed, isOpen: true })).toMatchObject({ numDuplicates: 1 });
    const drawn = asRandomGroup(TEN);
    expect(selectShown(drawn, { group: RANDOM_GROUP, ...closed, isOpen: true })).toHaveLength(10);
    expect(new Set(drawn.map((one) => one.bin))).toEqual(new Set([RANDOM_GROUP]));
    expect(drawn.map((one) => one.rank)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
});

const BINS = [
  [0, 8, 6, 7],
  [1, 1, 6.5, 7],
  ...Array.from({ length: 6 }, (_, i) => [i + 2, i === 5 ? 0 : 1, 5 - i, 6 - i]),
].map(([bin = 0, examples = 0, low = 0, high = 0]) => ({ bin, examples, low, high, share: 0.1, active_tokens: 1 }));

test("examples of mixed strengths are from a few ranges below the top examples, the weakest among them", () => {
  const numbers = (all: boolean) => weakerBins(BINS, all).map(({ bin }) => bin);
  expect(numbers(true)).toEqual([1, 2, 3, 4, 5, 6]);
  expect(numbers(false)).toEqual([2, 3, 5, 6]);
});
