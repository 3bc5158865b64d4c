import { expect, test } from "vitest";

import type { SearchHit } from "@/api/types";

import { mergeHits } from "./word-search";

const hit = (expert: number, matched: SearchHit["matched"], others: Partial<SearchHit> = {}) =>
  ({
    expert,
    matched,
    label: null,
    automatic: null,
    example: null,
    token_share: null,
    relation: null,
    ...others,
  }) as SearchHit;

test("hits of all layers are one list, the best match first, and each expert has one", () => {
  const label = { is_clear: true, f1: 0.64 } as SearchHit["automatic"];
  const weak = { is_clear: false, f1: 0.1 } as SearchHit["automatic"];
  const merged = mergeHits([
    {
      run: "a",
      layer: 1,
      hits: [
        hit(1, "example"),
        hit(5, "related", { token_share: 0.9, relation: 0.05 }),
        hit(2, "related", { token_share: 0.2, relation: 0.1 }),
        hit(1, "token", { token_share: 0.001 }),
      ],
    },
    {
      run: "b",
      layer: 2,
      hits: [
        hit(1, "label", { automatic: label }),
        hit(3, "label", { automatic: weak }),
        hit(4, "token", { token_share: 0.4 }),
        hit(6, "label", { label: "Fires on “that”, “next”", relation: 0.01 }), // of a related word
      ],
    },
  ]);
  const shared = { example: { token_ids: [1, 2] } as unknown as SearchHit["example"] };
  const twice = [1, 2].map((layer) => ({ run: `l${layer}`, layer, hits: [hit(layer, "example", shared)] }));
  expect(mergeHits(twice)).toHaveLength(1);
  expect(merged.map(({ run, hit: { expert } }) => `${run}${expert}`).join(" ")).toBe("b1 b4 a2 a5 a1 b3 b6");
});
