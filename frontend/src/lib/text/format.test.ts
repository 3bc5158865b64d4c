import { describe, expect, it } from "vitest";

import * as f from "./format";

describe("format", () => {
  it("separates thousands in counts and uses a true minus sign", () => {
    expect(f.formatCount(86015)).toBe("86,015");
    expect(f.formatFixed(-1.234)).toBe("−1.23");
    expect(f.formatFixed(-0.001)).toBe("0.00");
  });

  it("signs differences unless they round to zero", () => {
    expect(f.formatSigned(0.414)).toBe("+0.41");
    expect(f.formatSigned(-0.27)).toBe("−0.27");
    expect(f.formatSigned(-0.001)).toBe("0.00");
  });

  it("writes shares in percent without the unit", () => {
    expect(f.formatPercent(0.00087)).toBe("0.087");
    expect(f.formatShare(0.00087)).toBe("0.087");
    expect(f.formatShare(1e-6)).toBe("<0.001");
    expect(f.formatShare(1e-6, 0)).toBe("<1");
    expect(f.formatShare(0)).toBe("0.000");
    expect(f.formatShare(0.0004, 1)).toBe("<0.1");
    expect(f.formatShare(0, 1)).toBe("0.0");
  });

  it("shortens amounts", () => {
    expect(f.formatCompact(611)).toBe("611");
    expect(f.formatCompact(342_100_000)).toBe("342.1 M");
    expect(f.formatCompact(480_000_000)).toBe("480 M");
    expect(f.formatBytes(3_100_000_000)).toBe("3.1 GB");
    expect(f.formatBytes(12)).toBe("12 B");
  });

  it("writes durations in a readable unit", () => {
    expect(f.formatDuration(12.2)).toBe("12 s");
    expect(f.formatDuration(37 * 60)).toBe("37 min");
    expect(f.formatDuration(7500)).toBe("2 h 05 min");
    expect(f.formatAgo("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:00:04Z"))).toBe("4 s ago");
    expect(f.formatAgo("2026-01-01T00:00:00Z", Date.parse("2026-01-01T10:08:00Z"))).toBe("10 h ago");
    expect(f.formatAgo("2026-01-01T00:00:00Z", Date.parse("2026-01-05T00:00:00Z"))).toBe("4 d ago");
  });
});
