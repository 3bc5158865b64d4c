import { describe, expect, it } from "vitest";

import type { Column } from "@/api/types";
import { readParams } from "@/hooks/use-url-state";
import { filtersOf, formatBound } from "@/components/experts/columns";

import { boundParams, EXPERTS_PARAMS, toFilters } from "./experts-params";

const column = (key: string, kind: Column["kind"], ends: readonly ("min" | "max")[]) =>
  ({
    key,
    kind,
    title: key,
    unit: kind === "share" ? "%" : null,
    sortable: true,
    filters: ends.map((end) => ({ name: `${end}_${key}`, end })),
  }) as unknown as Column;
const COLUMNS = [
  column("label", "text", []),
  column("density", "share", ["min", "max"]),
  column("times", "count", ["min"]),
];
const FILTERS = filtersOf(COLUMNS);

function requested(search: string, isSteerable = false) {
  const params = readParams(EXPERTS_PARAMS, search);
  return toFilters({
    columns: COLUMNS,
    filters: FILTERS,
    isSteerable,
    params,
    bounds: readParams(boundParams(FILTERS), search),
  });
}

describe("filters of the experts page", () => {
  it("contain only what is set", () => {
    expect(requested("")).toEqual({ sort: "label", order: "asc" });
    expect(requested("", true)).toEqual({ sort: "credible", order: "desc" });
    expect(requested("sort=label", true)).toEqual({ sort: "label", order: "asc" });
    expect(requested("sort=density")).toEqual({ sort: "density", order: "desc" });
    expect(requested("sort=nothing")).toEqual({ sort: "label", order: "asc" });
  });

  it("put the best matches of a search first, unless a column was chosen", () => {
    expect(requested("search=may")).toEqual({ sort: "match", order: "asc", search: "may" });
    expect(requested("search=may&sort=label")).toMatchObject({ sort: "label" });
  });

  it("go from the URL to the request", () => {
    expect(requested("?token=+return&min_times=1.5")).toMatchObject({ token: " return", min_times: 2 });
    expect(requested("?sort=density&order=asc&search=+may+&min_density=0.00001&max_density=2")).toEqual({
      sort: "density",
      order: "asc",
      search: "may",
      min_density: 0.00001,
      max_density: 1,
    });
  });

  it("are written in their unit without trailing zeros", () => {
    const bound = (name: string, value: number) =>
      FILTERS.filter((each) => each.name === name).map((each) => formatBound(each, value));
    expect(bound("min_density", 0.00001)).toEqual(["0.001"]);
    expect(bound("max_density", 0.5)).toEqual(["50"]);
    expect(bound("min_times", 2.25)).toEqual(["2.25"]);
  });
});
