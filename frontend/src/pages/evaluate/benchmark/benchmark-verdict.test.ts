import { describe, expect, it } from "vitest";

import type { BenchmarkSummary } from "@/api/types";

import { benchmarkVerdict } from "./benchmark-verdict";

/** Differences with 5 units from a transcoder, the neurons and a random gate, and one with 1 unit from each. */
function measured(ends: readonly (readonly [number, number, number])[], datasets = 16): BenchmarkSummary {
  const names = ["transcoder", "neurons of layer 3", "random gate of layer 3"];
  const kinds = ["run", "neurons", "random-gate"] as const;
  const at = (units: number) =>
    ends.map(([mean, low, high], i) => ({ subject: names[i] ?? "", units, mean, low, high, better: 0 }));
  return {
    settings: { sae_probes: "0.4.2", language_model: "lm", texts: null, tokens: 64, units: [1, 5], seeds: [42] },
    datasets: Array.from({ length: datasets }, (_, i) => String(i)),
    training_texts: [200, 200],
    test_texts: [99, 99],
    subjects: [
      { name: "ours", kind: "run" },
      ...ends.map((_, i) => ({ name: names[i] ?? "", kind: kinds[i] ?? "run" })),
    ],
    scores: [],
    differences: [...at(1).map((one) => ({ ...one, mean: 0.5, low: 0.4, high: 0.6 })), ...at(5)],
  };
}

describe("the verdict of a benchmark", () => {
  it("says plainly that neurons win, and claims nothing within an interval", () => {
    const { title, comparisons, resolution } = benchmarkVerdict(
      measured([
        [-0.004, -0.021, 0.014],
        [-0.022, -0.043, -0.0003],
        [0.2, 0.15, 0.25],
      ]),
    );
    expect(title).toBe("ours is better in 4 of 6 comparisons, worse in 1, and not clearly different in 1");
    expect(comparisons).toEqual([
      "neurons of layer 3: ours is better with 1 unit; the neurons are better with 5 units.",
      "random gate of layer 3: ours is better with 1 or 5 units.",
      "transcoder: ours is better with 1 unit; no clear difference with 5 units.",
    ]);
    expect(resolution).toBe(
      "The 95 % intervals over 16 data sets are ±0.018 to ±0.100, so smaller differences can be missed. " +
        "With so few data sets, an interval that just excludes zero proves little.",
    );
  });

  it("claims nothing that chance alone explains", () => {
    const summary = measured([[0.02, 0.0001, 0.03]], 30);
    const [clear] = summary.differences.slice(-1);
    const level = { ...summary.differences[0], mean: 0, low: -0.1, high: 0.1 } as (typeof summary.differences)[number];
    const many = { ...summary, differences: [...Array.from({ length: 11 }, () => level), ...(clear ? [clear] : [])] };
    const { title, resolution } = benchmarkVerdict(many);
    expect(title).toBe(
      "No difference of ours stands out: 1 of 12 intervals excludes zero, which chance alone can explain",
    );
    expect(resolution).toMatch(/can be missed\.$/);
  });

  it("claims nothing from one data set", () => {
    const { title, resolution } = benchmarkVerdict(measured([[0.03, 0.03, 0.03]], 1));
    expect(title).toBe("ours does not differ clearly from the others in any of 2 comparisons");
    expect(resolution).toBe("One data set gives no interval, so no difference is claimed.");
  });
});
