import { describe, expect, it } from "vitest";

import type { PassageHit } from "@/api/types";

import { passageCsv } from "./passage-export";

const hit: PassageHit = {
  expert: 7,
  label: 'says "no"',
  automatic: null,
  mass: 2.5,
  share: 0.5,
  lift: null,
  usage: null,
  largest: null,
  peak: 1,
  active: [[1, 2.5]],
  top_tokens: [],
};

describe("a file of what fires on a passage", () => {
  it("has a row an expert, and nothing where nothing is known", () => {
    const tokens = [
      { id: 0, text: "", start: true },
      { id: 1, text: " no", start: false },
    ];
    const [head, row] = passageCsv({ hits: [hit], tokens })
      .trim()
      .split(/\r?\n/);
    expect(head).toBe("expert,label,automatic_label,mass,share,lift,usage,strongest_on,top_tokens");
    expect(row).toBe('7,"says ""no""",,2.5,0.5,,, no,');
  });
});
