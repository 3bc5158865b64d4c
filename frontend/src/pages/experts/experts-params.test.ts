import { describe, expect, it } from "vitest";

import { readParams } from "@/url-state";

import { boundText, columnsParam, EXPERTS_PARAMS, toFilters } from "./experts-params";

describe("filters of the experts page", () => {
  it("ask for nothing that is not set", () => {
    expect(toFilters(readParams(EXPERTS_PARAMS, ""))).toEqual({ sort: "largest", order: "desc" });
  });

  it("go from the address to the request", () => {
    const params = readParams(EXPERTS_PARAMS, "?sort=usage&order=asc&search=+may+&min_usage=0.00001&max_usage=2");
    expect(toFilters(readParams(EXPERTS_PARAMS, "?token=+return"))).toMatchObject({ token: " return" });
    expect(toFilters(params)).toEqual({ sort: "usage", order: "asc", search: "may", min_usage: 0.00001, max_usage: 1 });
  });

  it("keep which columns are hidden", () => {
    expect(columnsParam.read("entropy,label,usage")).toEqual(["usage", "entropy"]);
    expect(columnsParam.write(["usage", "entropy"])).toBe("usage,entropy");
    expect(columnsParam.write([])).toBeNull();
  });

  it("are written in their unit without idle digits", () => {
    expect(boundText("min_usage", 0.00001)).toBe("0.001");
    expect(boundText("max_usage", 0.5)).toBe("50");
    expect(boundText("min_largest", 2.25)).toBe("2.25");
  });
});
