import { describe, expect, it } from "vitest";

import { figureTable, readTrace, toCsv } from "./figure-data";

const LAYOUT = { xaxis: { title: { text: "tokens" } }, yaxis: { title: "normalised MSE" } };

describe("figure tables", () => {
  it("reads the role from meta in either form", () => {
    expect(readTrace({ meta: "this-run" }).role).toBe("this-run");
    expect(readTrace({ meta: { role: "other" } }).role).toBe("other");
    expect(readTrace({}).role).toBe("");
  });

  it("have one row per point and no empty columns", () => {
    const figure = { data: [{ name: "a", x: [1, 2], y: [0.5, 1 / 3] }], layout: LAYOUT };
    expect(figureTable(figure)).toEqual({
      columns: ["series", "tokens", "normalised MSE"],
      rows: [
        ["a", "1", "0.5"],
        ["a", "2", "0.33333"],
      ],
    });
  });

  it("keep points and labels", () => {
    const figure = { data: [{ x: [1], y: [2], customdata: [52940], text: ['say "may"'] }], layout: {} };
    const table = figureTable(figure);
    expect(table.columns).toEqual(["point", "label", "x", "y"]);
    expect(toCsv(table)).toBe('point,label,x,y\r\n52940,"say ""may""",1,2\r\n');
  });

  it("have the figure's own headers, without traces that only annotate", () => {
    const columns = { series: "", point: ["expert", "", "density, %"], y: "mean activation" };
    const data = [
      { name: "Experts", x: [1], y: [2], customdata: [[7, "dates", 0.1]] },
      { x: [1], y: [2], hoverinfo: "skip" },
    ];
    expect(figureTable({ data, layout: { meta: { columns }, xaxis: { title: "K, log scale" } } })).toEqual({
      columns: ["expert", "density, %", "K", "mean activation"],
      rows: [["7", "0.1", "1", "2"]],
    });
  });

  it("have the ends of error bars", () => {
    const error_x = { array: [0.2, null], arrayminus: [0.1, null] };
    const table = figureTable({ data: [{ x: [0.5, 1], y: ["a", "b"], error_x }], layout: {} });
    expect(table.columns).toEqual(["x", "y", "interval low", "interval high"]);
    expect(table.rows).toEqual([
      ["0.5", "a", "0.4", "0.7"],
      ["1", "b", "", ""],
    ]);
  });

  it("round to five digits, without losing zeros before the point", () => {
    expect(figureTable({ data: [{ x: [10000.4], y: [1 / 3] }], layout: {} }).rows).toEqual([["10000", "0.33333"]]);
  });
});
