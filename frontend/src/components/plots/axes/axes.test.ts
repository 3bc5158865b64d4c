import { describe, expect, it } from "vitest";

import { logTicks, DENSITY_AXIS } from "./axes";

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
});
