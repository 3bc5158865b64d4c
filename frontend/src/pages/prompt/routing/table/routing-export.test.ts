import { describe, expect, it } from "vitest";

import type { RoutingResponse } from "@/api/types";

import { routingTable } from "./routing-export";

const experts = [{ expert: 5, activation: 1.23456, share: 0.5 }];
const response = {
  tokens: [
    { start: true, text: "<s>", experts },
    { start: false, text: " a", experts },
  ],
  experts: { 5: { label: "fifth" } },
} as unknown as RoutingResponse;

describe("a routing as a table", () => {
  it("has one row per token and active expert", () => {
    expect(
      routingTable(
        response,
        [0, 0.25].map((kl) => ({ kl, zeroed_kl: 2 * kl, predictions: [] })),
        false,
      ).rows,
    ).toEqual([["1", " a", "0.2500", "5", "1.2346", "0.5000", "fifth", ""]]);
    const automatic = { label: "letters", balanced_accuracy: 0.9, is_clear: true };
    const other = { ...response, experts: { 5: { label: null, automatic } } } as unknown as RoutingResponse;
    expect(routingTable(other, undefined, false).rows[0]?.slice(6)).toEqual(["letters", "0.90"]);
    expect(routingTable(response, undefined, true).rows.map((row) => row[2])).toEqual(["", ""]);
  });
});
