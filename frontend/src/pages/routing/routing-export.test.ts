import { describe, expect, it } from "vitest";

import type { RoutingResponse } from "@/api/types";

import { routingTable } from "./routing-export";

const experts = [{ expert: 5, coefficient: 1.23456, share: 0.5 }];
const response = {
  tokens: [
    { start: true, text: "<s>", kl: 0, experts },
    { start: false, text: " a", kl: 0.25, experts },
  ],
  experts: { 5: { label: "fifth" } },
} as unknown as RoutingResponse;

describe("a routing as a table", () => {
  it("has a row for every token and expert active on it", () => {
    expect(routingTable(response, false).rows).toEqual([["1", " a", "0.2500", "5", "fifth", "1.2346", "0.5000"]]);
    expect(routingTable(response, true).rows).toHaveLength(2);
  });
});
