import { describe, expect, it } from "vitest";

import { readParams, writeParams } from "@/hooks/use-url-state";

import { ROUTING_PARAMS } from "./routing-params";

describe("URL parameters of Routing", () => {
  it("round-trip", () => {
    const values = {
      prompt: "a\nb & c",
      lock: { position: 3, expert: 12 },
      of: "other-l2",
      second: "a second text",
      align: "apart",
      layers: ["one", "other-l2"],
      k: 4,
      density: 2.5,
      mixed: true,
      rank: "rarest",
      start: true,
      rows: 50,
    } as const;
    const search = writeParams(ROUTING_PARAMS, "?run=demo", values);
    expect(readParams(ROUTING_PARAMS, search)).toEqual(values);
    expect(new URLSearchParams(search).get("lock")).toBe("3.12");
  });

  it("lock a token without an expert, or nothing", () => {
    expect(readParams(ROUTING_PARAMS, "?lock=7").lock).toEqual({ position: 7, expert: null });
    expect(readParams(ROUTING_PARAMS, "?lock=x").lock).toBeNull();
    expect(writeParams(ROUTING_PARAMS, "?lock=7", { lock: null })).toBe("");
  });
});
