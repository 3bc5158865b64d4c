import { expect, test } from "vitest";

import type { ContrastHit } from "@/api/types";

import { contrastCsv } from "./contrast-export";

const hit = (expert: number, activation_ratio: number | null): ContrastHit => ({
  contrast: {
    expert,
    active_a: 30,
    active_b: 2,
    units_a: 12,
    units_b: 1,
    density_a: 0.03,
    density_b: 0.002,
    ratio: { value: 12, low: 4, high: 36 },
    activation_ratio,
    p_value: 0.0001,
    q_value: 0.01,
  },
  label: "Fires on dates, numbers",
  automatic: null,
  max_activation: 2,
  top_tokens: [],
  examples_a: [],
  examples_b: [],
});

test("a row per expert, both directions, with missing values empty", () => {
  const [head, one, two] = contrastCsv({ more_in_a: [hit(3, 15)], more_in_b: [hit(7, null)] }).split("\r\n");
  expect(head).toMatch(/^expert,label,automatic_label,ratio,ratio_low,ratio_high,active_a/);
  expect(one).toBe('3,"Fires on dates, numbers",,12,4,36,30,2,12,1,0.03,0.002,15,0.0001,0.01');
  expect(two).toContain(",0.002,,0.0001");
});

test("an automatic label that is not clear is left out, as on the page", () => {
  const weak = { ...hit(3, 15), automatic: { label: "maybe dates", is_clear: false } } as unknown as ContrastHit;
  expect(contrastCsv({ more_in_a: [weak], more_in_b: [] })).not.toContain("maybe dates");
});
