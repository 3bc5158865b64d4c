import { describe, expect, it } from "vitest";

import type { PassageHit } from "@/api/types";

import { passageCsv } from "./passage-search";

const hit: PassageHit = {
  expert: 7,
  label: 'says "no"',
  automatic: null,
  mass: 2.5,
  share: 0.5,
  lift: null,
  lift_low: null,
  lift_high: null,
  density: null,
  max_activation: null,
  peak: 1,
  active: [[1, 2.5]],
  top_tokens: [],
};

describe("an exported passage search", () => {
  it("has one row per expert, and empty cells for unknown values", () => {
    const tokens = [
      { id: 0, text: "", start: true },
      { id: 1, text: " no", start: false },
    ];
    const [head, row] = passageCsv({ hits: [hit], tokens })
      .trim()
      .split(/\r?\n/);
    expect(head).toBe(
      "expert,label,automatic_label,mass,share,lift,lift_low,lift_high,density,strongest_on,top_tokens",
    );
    expect(row).toBe('7,"says ""no""",,2.5,0.5,,,,, no,');
  });
});
