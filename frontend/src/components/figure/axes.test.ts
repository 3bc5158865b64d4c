import { describe, expect, it } from "vitest";

import { logTicks, percentUsageAxis, USAGE_AXIS } from "./axes";

describe("axes", () => {
  it("have more ticks where values lie near, and each is written in full", () => {
    expect(logTicks([0.27, 0.8]).ticktext).toContain("0.3");
    expect(logTicks([0.01, 1]).ticktext).not.toContain("0.3");
    expect(logTicks([0.01, 1]).ticktext).toContain("0.05");
    expect(logTicks([])).toEqual({});
  });

  it("write usage in percent", () => {
    expect(USAGE_AXIS.ticktext.at(-1)).toBe("100");
    expect(USAGE_AXIS.ticktext[0]).toBe("0.00001");
  });

  it("mark the usage that all experts would share", () => {
    const figure = { name: "usage-histogram", title: "", data: [], layout: {}, drawn: 0, total: 0 } as const;
    expect(percentUsageAxis({ ...figure, data: [] }, 0.01).layout.shapes).toHaveLength(1);
    expect(percentUsageAxis({ ...figure, data: [] }, null).layout.shapes).toBeUndefined();
  });
});
