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

  it("keep experts and labels of points", () => {
    const figure = { data: [{ x: [1], y: [2], customdata: [52940], text: ['say "may"'] }], layout: {} };
    const table = figureTable(figure);
    expect(table.columns).toEqual(["point", "label", "x", "y"]);
    expect(toCsv(table)).toBe('point,label,x,y\r\n52940,"say ""may""",1,2\r\n');
  });
});
