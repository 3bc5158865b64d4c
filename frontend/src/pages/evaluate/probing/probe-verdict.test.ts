import { describe, expect, it } from "vitest";

import { differenceOf, intervalOf, type ProbedClass, scoreText } from "./probe-metrics";
import { probeVerdict } from "./probe-verdict";

const score = (f1: number, roc_auc: number | null = null) => ({
  f1,
  low: f1 - 0.1,
  high: f1 + 0.1,
  balanced_accuracy: 0.5,
  roc_auc,
  roc_auc_low: roc_auc === null ? null : roc_auc - 0.1,
  roc_auc_high: roc_auc === null ? null : roc_auc + 0.1,
});

/** Classes of which the expert has these F1 scores, the neuron 0.7 and a lower or higher ROC-AUC. */
const probed = (experts: readonly number[], neuronArea: number | null = null) =>
  experts.map((f1, i): ProbedClass => ({
    name: `class ${i}`,
    examples: 100,
    test_examples: 20,
    expert: i,
    top1: score(f1, neuronArea === null ? null : 0.8),
    top5: score(f1),
    neuron: score(0.7, neuronArea),
    random_gate: score(0.3, neuronArea === null ? null : 0.8),
  }));

describe("the verdict of a probe", () => {
  it("says plainly that neurons win", () => {
    expect(probeVerdict(probed([0.5, 0.5, 0.52, 0.48, 0.5]))).toEqual([
      "Best expert against the best MLP neuron: worse by F1, not clearly different by balanced accuracy.",
      "Best expert against the best unit of a random gate: better only by F1, not clearly different by balanced accuracy.",
    ]);
    expect(differenceOf(probed([0.5, 0.5, 0.52, 0.48, 0.5]), "neuron", "f1")).toMatchObject({
      text: "−0.200 (−0.218 to −0.182)",
      lost: 5,
    });
  });

  it("claims nothing if the interval contains zero, and from few classes", () => {
    expect(probeVerdict(probed([0.9, 0.5, 0.8, 0.6, 0.75]))[0]).toMatch(
      /: not clearly different by balanced accuracy and F1\.$/,
    );
    expect(differenceOf(probed([0.9, 0.9]), "neuron", "f1")).toMatchObject({ sign: "no", text: "+0.200" });
  });

  it("covers all metrics, also if they say the opposite", () => {
    const [neurons, gate] = probeVerdict(probed([0.9, 0.9, 0.9, 0.9, 0.9, 0.9], 0.95));
    expect(neurons).toMatch(/: better only by F1, worse by ROC-AUC, not clearly different by balanced accuracy\.$/);
    expect(gate).toMatch(/: better only by F1, not clearly different by ROC-AUC and balanced accuracy\.$/);
  });
});

describe("a score", () => {
  it("has an interval, except for balanced accuracy", () => {
    expect(scoreText(score(0.5, 0.8), "f1")).toBe("0.500 (0.400 to 0.600)");
    expect(scoreText(score(0.5, 0.8), "roc-auc")).toBe("0.800 (0.700 to 0.900)");
    expect(scoreText(score(0.5, 0.8), "balanced-accuracy")).toBe("0.500");
    expect(scoreText(score(0.5), "roc-auc")).toBe("–");
    expect(intervalOf(score(0.5), "roc-auc")).toBeNull();
    expect(differenceOf(probed([0.5]), "neuron", "roc-auc")).toBeNull();
  });
});
