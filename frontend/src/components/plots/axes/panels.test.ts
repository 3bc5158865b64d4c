import { describe, expect, it } from "vitest";

import type { FigureData } from "@/api/types";

import { panelsHeight } from "./panels";

const figure = (data: Record<string, unknown>[], layout: Record<string, unknown>): FigureData => ({
  name: "probe-coefficients",
  title: "",
  data,
  layout,
  drawn: 0,
  total: 0,
});

describe("the height", () => {
  it("grows with every third panel", () => {
    const [three, four] = [
      ["yaxis", "yaxis2", "yaxis3"],
      ["yaxis", "yaxis2", "yaxis3", "yaxis4"],
    ].map((names) => panelsHeight(figure([], Object.fromEntries(names.map((name) => [name, {}])))));
    expect(panelsHeight(figure([], { yaxis: {}, xaxis: {} }))).toBe(three);
    expect(four).toBeGreaterThan(three ?? 0);
  });
});
