import { describe, expect, it } from "vitest";

import type { BenchmarkSummary } from "@/api/types";

import { benchmarkVerdict } from "./benchmark-verdict";

const MEANING = "ROC-AUC of ours minus the other’s, mean and 95 % interval over 16 data sets, 5 units per probe.";

const SAME = "Other sizes: ours is better at 1 unit: +0.500 (+0.400 to +0.600).";

/** Differences at 5 units to a transcoder, the neurons and a random gate, and others at 1 unit. */
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
    const summary = measured([
      [-0.004, -0.021, 0.014],
      [-0.022, -0.043, -0.0003],
    ]);
    expect(benchmarkVerdict(summary).join(" ")).toBe(
      `${MEANING} No clear difference between ours and transcoder: −0.004 (−0.021 to +0.014). ` +
        "Other sizes: ours is better at 1 unit: +0.500 (+0.400 to +0.600). " +
        "The neurons of layer 3 separate the classes better than ours: −0.022 (−0.043 to −0.0003). " +
        "Other sizes: ours is better at 1 unit: +0.500 (+0.400 to +0.600).",
    );
  });

  it("says that the first run wins", () => {
    const summary = measured([
      [0.03, 0.01, 0.05],
      [0.02, 0, 0.04],
      [0.2, 0.1, 0.3],
    ]);
    expect(benchmarkVerdict(summary).join(" ")).toBe(
      `${MEANING} ours separates the classes better than transcoder: +0.030 (+0.010 to +0.050). ` +
        `${SAME} ` +
        "No clear difference between ours and the neurons of layer 3: +0.020 (0.000 to +0.040). " +
        "Other sizes: ours is better at 1 unit: +0.500 (+0.400 to +0.600). " +
        "ours separates the classes better than the random gate of layer 3: +0.200 (+0.100 to +0.300). " +
        SAME,
    );
  });

  it("claims nothing from one data set, and is about the smallest probes without 5 units", () => {
    const { settings, ...rest } = measured([[0.03, 0.03, 0.03]], 1);
    const verdict = benchmarkVerdict({ ...rest, settings: { ...settings, units: [2, 1] } });
    expect(verdict.join(" ")).toMatch(
      /over 1 data set, 1 unit per probe\. No clear difference between ours and transcoder: /,
    );
  });
});
