import { describe, expect, it } from "vitest";

import { figureTable } from "@/components/plots/figure/figure-data";

import { logTicks, withDensityAxis, DENSITY_AXIS } from "./axes";

describe("axes", () => {
  it("have denser log ticks over a short range, with plain numbers", () => {
    expect(logTicks([0.27, 0.8]).ticktext).toContain("0.3");
    expect(logTicks([0.01, 1]).ticktext).not.toContain("0.3");
    expect(logTicks([0.01, 1]).ticktext).toContain("0.05");
    expect(logTicks([])).toEqual({});
  });

  it("write density in percent", () => {
    expect(DENSITY_AXIS.ticktext.at(-1)).toBe("100");
    expect(DENSITY_AXIS.ticktext[0]).toBe("0.00001");
  });

  it("mark the even density K/N", () => {
    const figure = { name: "density-histogram", title: "", data: [], layout: {}, drawn: 0, total: 0 } as const;
    expect(withDensityAxis({ ...figure, data: [] }, 0.01).layout.shapes).toHaveLength(1);
  });

  it("export histograms of densities in percent", () => {
    const bars = { name: "Experts", x: [0.002], y: [3], width: [0.003], customdata: [[0.001, 0.004]] };
    const figure = { name: "density-histogram", title: "", layout: {}, drawn: 1, total: 1 } as const;
    expect(figureTable(withDensityAxis({ ...figure, data: [bars] }, 0.01))).toEqual({
      columns: ["activation density from, % of tokens", "to, % of tokens", "experts"],
      rows: [["0.1", "0.4", "3"]],
    });
  });
});
