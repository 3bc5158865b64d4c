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
  expect(plain(recovered?.meaning)).toContain("Relative to mean ablation: 90.9 % (88.6 % to 92.9 %).");
  expect(routing?.meaning).toContain("It depends on which experts are active.");
  expect(plain(equal?.value)).toBe("0 of 32 prompts at 32 tokens");
  expect(plain(equal?.interval)).toBe("0.0 % to 10.7 %");
});

test("a low routing share is called by its meaning", () => {
  const [found] = findings([share("Routing share", 0.2, 0.1, 0.3)]);
  expect(found?.meaning).toContain("It does not depend on which experts are active.");
});

test("other controls of the routing share follow it", () => {
  const [found] = findings([share("Routing share", 0.9, 0.8, 1), share("Strict routing share", 0.7, 0.6, 0.8)]);
  expect(plain(found?.meaning)).toMatch(/Strict routing share: 70\.0 % \(60\.0 % to 80\.0 %\)\.$/);
});

test("the verdict names the run, the reference and the longest continuation, with intervals", () => {
  expect(plain(faithfulnessVerdict("mine", FACTS))).toBe(
    "Replacing the MLP by mine raises the loss by 0.0300 nats per token (95 % interval 0.0200 to 0.0400): 91.5 % " +
      "(89.3 % to 93.4 %) of the loss that zero-ablating the MLP adds is recovered. " +
      "Routing share: 99.8 % (99.2 % to 100.4 %). " +
      "0 of 32 prompts keep the same greedy continuation for 32 tokens (0.0 % to 10.7 %).",
  );
  expect(faithfulnessVerdict("mine", [])).toBe("");
});

test("continuations are read by their length", () => {
  expect(continuations(FACTS).map(({ tokens, value }) => [tokens, value])).toEqual([
    [1, 0.938],
    [32, 0],
  ]);
});
