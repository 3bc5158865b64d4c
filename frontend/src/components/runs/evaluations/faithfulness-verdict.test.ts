import { expect, test } from "vitest";

import type { Fact } from "@/api/types";

import { continuations, faithfulnessVerdict, findings } from "./faithfulness-verdict";

const share = (name: string, value: number, low: number, high: number, group = "Routing"): Fact => ({
  name,
  value,
  low,
  high,
  unit: "share",
  description: "share of 32 prompts with the same greedy continuation",
  group,
});
const nats = (name: string, value: number): Fact => ({ name, value, unit: "nats", description: "" });

const FACTS: readonly Fact[] = [
  { ...nats("Loss increase", 0.03), low: 0.02, high: 0.04 },
  nats("Loss increase, MLP zero-ablated", 0.34),
  nats("Loss, original", 1.9),
  share("Loss recovered vs zero ablation", 0.915, 0.893, 0.934),
  share("Loss recovered vs mean ablation", 0.909, 0.886, 0.929),
  share("Routing share", 0.998, 0.992, 1.004),
  share("Next token", 0.938, 0.799, 0.983, "Same greedy continuation"),
  share("Next 32 tokens", 0, 0, 0.107, "Same greedy continuation"),
];

const plain = (text: string | undefined) => text?.replaceAll("\u00a0", " ");

test("each finding has its value, interval and reference", () => {
  const found = findings(FACTS);
  expect(found.map(({ name }) => name)).toEqual([
    "Loss increase",
    "Loss recovered",
    "Routing share",
    "Equal continuations",
  ]);
  const [loss, recovered, routing, equal] = found;
  expect(loss).toMatchObject({ value: "0.0300 nats per token", interval: "0.0200 to 0.0400" });
  expect(plain(loss?.meaning)).toContain("Zero-ablating the MLP adds 0.3400 nats.");
  expect(plain(recovered?.meaning)).toContain("Relative to mean ablation: 90.9 % (88.6 to 92.9 %).");
  expect(routing?.meaning).toContain("It depends on which experts are active.");
  expect(plain(equal?.value)).toBe("0 of 32 prompts at 32 tokens");
  expect(plain(equal?.interval)).toBe("0.0 to 10.7 %");
});

test("a low routing share is called by its meaning", () => {
  const [found] = findings([share("Routing share", 0.2, 0.1, 0.3)]);
  expect(found?.meaning).toContain("It does not depend on which experts are active.");
});

test("the strict routing share comes first", () => {
  const [found] = findings([share("Routing share", 0.9, 0.8, 1), share("Strict routing share", 0.7, 0.6, 0.8)]);
  expect(found?.name).toBe("Strict routing share");
  expect(plain(found?.value)).toBe("70.0 %");
  expect(plain(found?.meaning)).toMatch(/its best constant, .* Frozen at the median: 90\.0 % \(80\.0 to 100\.0 %\)\.$/);
});

test("the verdict names the run, the reference and the routing", () => {
  expect(plain(faithfulnessVerdict("mine", FACTS))).toBe(
    "mine recovers 91.5 % of the loss that zero-ablating the MLP adds, and 99.8 % of its effect depends on routing.",
  );
  expect(faithfulnessVerdict("mine", [])).toBe("");
});

test("a share of 100 % or more says how the frozen layer predicts, and what it does not measure", () => {
  const sharing = (low: number) => [
    ...FACTS.filter(({ name }) => name !== "Routing share"),
    share("Strict routing share", 1.234, low, 1.3),
  ];
  const [clear, unclear] = [sharing(1.2), sharing(0.9)];
  expect(faithfulnessVerdict("mine", clear)).toMatch(
    /adds\. With its mixing frozen at its best constant, it predicts worse than the MLP’s mean output\.$/,
  );
  expect(faithfulnessVerdict("mine", unclear)).toContain("it predicts no better than the MLP’s mean output.");
  expect(findings(clear)[2]?.meaning).toMatch(/the layer predicts worse than the MLP’s mean output\.$/);
  expect(findings(clear, true)[2]?.meaning).toContain("This share does not measure what the skip path adds.");
});

test("continuations are read by their length", () => {
  expect(continuations(FACTS).map(({ tokens, value }) => [tokens, value])).toEqual([
    [1, 0.938],
    [32, 0],
  ]);
});
