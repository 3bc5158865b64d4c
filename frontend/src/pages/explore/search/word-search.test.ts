import { expect, test } from "vitest";

import type { SearchHit } from "@/api/types";

import { mergeHits } from "./word-search";

const hit = (expert: number, matching_examples: number, others: Partial<SearchHit> = {}) =>
  ({ expert, matching_examples, closeness: 0, matched: "related", label: null, relation: 0.1, ...others }) as SearchHit;
const example = (expert: number, matching: number, token_ids: number[]) =>
  hit(expert, matching, { matched: "example", example: { token_ids } as unknown as SearchHit["example"] });

test("hits of all layers are one list, those with most matching examples first, and each expert has one", () => {
  const mine = { matched: "label", label: "Fires on dates" } as const;
  const merged = mergeHits([
    { run: "a", layer: 1, hits: [hit(1, 8, { closeness: 0.5 }), hit(1, 8), hit(2, 2), hit(3, 0, { matched: "id" })] },
    {
      run: "b",
      layer: 2,
      hits: [
        hit(7, 8, { matched: "token" }),
        hit(4, 8, { closeness: 0.9 }),
        hit(5, 0, { ...mine, relation: null }),
        hit(6, 1, mine),
      ], // of a related word
    },
  ]);
  expect(merged.map(({ run, hit: { expert } }) => `${run}${expert}`).join(" ")).toBe("a3 b5 b7 b4 a1 a2 b6");
});

test("an example in which experts of several layers fire is listed once", () => {
  const layers = [1, 2].map((layer) => ({ run: `l${layer}`, layer, hits: [example(layer, layer, [1, 2])] }));
  expect(mergeHits(layers).map(({ layer }) => layer)).toEqual([2]);
});
