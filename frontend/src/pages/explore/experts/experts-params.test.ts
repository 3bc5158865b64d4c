import { describe, expect, it } from "vitest";

import { readParams } from "@/hooks/use-url-state";

import { formatBound, columnsParam, EXPERTS_PARAMS, toFilters } from "./experts-params";

describe("filters of the experts page", () => {
  it("contain only what is set", () => {
    expect(toFilters(readParams(EXPERTS_PARAMS, ""))).toEqual({ sort: "label", order: "asc" });
    expect(toFilters(readParams(EXPERTS_PARAMS, "sort=density"))).toEqual({ sort: "density", order: "desc" });
  });

  it("put the best matches of a search first, unless a column was chosen", () => {
    expect(toFilters(readParams(EXPERTS_PARAMS, "search=may"))).toEqual({ sort: "match", order: "asc", search: "may" });
    expect(toFilters(readParams(EXPERTS_PARAMS, "search=may&sort=label"))).toMatchObject({ sort: "label" });
  });

  it("go from the URL to the request", () => {
    const params = readParams(EXPERTS_PARAMS, "?sort=density&order=asc&search=+may+&min_density=0.00001&max_density=2");
    expect(toFilters(readParams(EXPERTS_PARAMS, "?token=+return"))).toMatchObject({ token: " return" });
    expect(toFilters(params)).toEqual({
      sort: "density",
      order: "asc",
      search: "may",
      min_density: 0.00001,
      max_density: 1,
    });
  });

  it("keep hidden columns", () => {
    expect(columnsParam.read("entropy,label,density")).toEqual(["density", "entropy"]);
    expect(columnsParam.write(["density", "entropy"])).toBe("density,entropy");
    expect(columnsParam.write([])).toBeNull();
  });

  it("are written in their unit without trailing zeros", () => {
    expect(formatBound("min_density", 0.00001)).toBe("0.001");
    expect(formatBound("max_density", 0.5)).toBe("50");
    expect(formatBound("min_max_activation", 2.25)).toBe("2.25");
  });
});
