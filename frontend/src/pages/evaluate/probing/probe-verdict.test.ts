import { describe, expect, it } from "vitest";

import type { ProbeSummary } from "@/api/types";

import { probeVerdict } from "./probe-verdict";

const probed = (name: string, expert: number, neuron: number) =>
  ({ name, top1: { f1: expert }, neuron: { f1: neuron }, random_gate: { f1: 0.3 } }) as ProbeSummary["classes"][number];

describe("the verdict of a probe", () => {
  it("says plainly that neurons win", () => {
    expect(probeVerdict([probed("de", 0.7, 0.9), probed("es", 0.8, 0.95), probed("nl", 0.6, 0.82)])).toBe(
      "By F1, single MLP neurons detect the classes better than single experts: F1 of the expert minus F1 of the neuron is −0.190 ± 0.042 (mean over 3 classes, 2 standard errors). The best neuron beats the best expert in 3 of 3 classes, most on nl (0.820 against 0.600). The experts also detect them better than an untrained gate: the difference in F1 is +0.400 ± 0.115.",
    );
  });

  it("claims nothing within the error", () => {
    const sentence = probeVerdict([probed("C", 0.8, 0.7), probed("Java", 0.4, 0.7)]);
    expect(sentence).toContain("no clear difference");
    expect(sentence).toContain("do not clearly detect them better than an untrained gate");
    expect(sentence).toContain("in 1 of 2 classes, most on Java");
  });

  it("states ROC-AUC beside F1, also if it says the opposite", () => {
    const one = probed("a", 0.9, 0.7);
    const classes = [0.01, 0.02].map((more) => ({
      ...one,
      top1: { ...one.top1, roc_auc: 0.8 },
      neuron: { ...one.neuron, roc_auc: 0.9 + more },
      random_gate: { ...one.random_gate, roc_auc: 0.8 },
    }));
    expect(probeVerdict(classes)).toContain(
      "In ROC-AUC, which needs no threshold, it is −0.115 ± 0.010 to the neurons and 0.000 ± 0.000 to the gate.",
    );
  });

  it("says that experts win", () => {
    expect(probeVerdict([probed("a", 0.9, 0.7), probed("b", 0.95, 0.7)])).toMatch(
      /^By F1, single experts detect .* in 0 of 2 classes\. The experts also/,
    );
  });
});
