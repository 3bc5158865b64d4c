import { describe, expect, it } from "vitest";

import type { FigureData } from "@/api/types";

import { categoriesHeight, panelsHeight } from "./panels";

const figure = (data: Record<string, unknown>[], layout: Record<string, unknown>): FigureData => ({
  name: "probing",
  title: "",
  data,
  layout,
  drawn: 0,
  total: 0,
});

describe("heights", () => {
  it("grow with every third panel", () => {
    const [three, four] = [
      ["yaxis", "yaxis2", "yaxis3"],
      ["yaxis", "yaxis2", "yaxis3", "yaxis4"],
    ].map((names) => panelsHeight(figure([], Object.fromEntries(names.map((name) => [name, {}])))));
    expect(panelsHeight(figure([], { yaxis: {}, xaxis: {} }))).toBe(three);
    expect(four).toBeGreaterThan(three ?? 0);
  });

  it("grow with the number of distinct categories", () => {
    const of = (...classes: string[]) => categoriesHeight(figure([{ y: classes }, { y: classes }], {}));
    expect(of("a", "b", "c", "d")).toBeGreaterThan(of("a", "b", "c"));
    expect(of("a")).toBe(of("a", "b", "c"));
  });
});
