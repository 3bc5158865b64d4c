import { expect, test } from "vitest";

import type { ContrastHit } from "@/api/types";

import { chosenKinds, contrastCsv, OWN_TEXT, ratioText, splitDocuments, textOfFile } from "./contrast-values";

test("two different kinds are chosen on opening", () => {
  const kinds = ["story", "code", "news"];
  expect(chosenKinds(null, null, kinds)).toEqual({ a: "story", b: "code" });
  expect(chosenKinds(null, "story", kinds)).toEqual({ a: "code", b: "story" });
  expect(chosenKinds("news", null, kinds)).toEqual({ a: "news", b: "story" });
  expect(chosenKinds("code", "code", kinds)).toEqual({ a: "code", b: "code" });
  expect(chosenKinds(OWN_TEXT, null, kinds)).toEqual({ a: OWN_TEXT, b: "story" });
});

test("own texts are compared if the run's text has no two kinds", () => {
  expect(chosenKinds(null, null, ["story"])).toEqual({ a: OWN_TEXT, b: OWN_TEXT });
  expect(chosenKinds(null, null, [])).toEqual({ a: OWN_TEXT, b: OWN_TEXT });
  expect(chosenKinds("news", null, [])).toEqual({ a: OWN_TEXT, b: OWN_TEXT });
});

test("a link with kinds that the run's text does not have gets others", () => {
  expect(chosenKinds("poem", "code", ["story", "code"])).toEqual({ a: "story", b: "code" });
  expect(chosenKinds("poem", null, undefined)).toEqual({ a: "poem", b: OWN_TEXT });
});

test("blank lines separate documents", () => {
  expect(splitDocuments("one\nstill one\n\n  \ntwo\n \nthree\n")).toEqual(["one\nstill one", "two", "three"]);
  expect(splitDocuments(" \n\n ")).toEqual([]);
});

test("each line of a .jsonl file is one document", () => {
  const content = '{"text": "one\\n\\nstill one"}\n\n{"kind": "x", "text": "two"}\n"three"\n';
  expect(splitDocuments(textOfFile("a.jsonl", content))).toEqual(["one\nstill one", "two", "three"]);
  expect(textOfFile("a.txt", "plain")).toBe("plain");
});

test("a line without text is named", () => {
  expect(() => textOfFile("a.jsonl", '{"text": "one"}\n{"body": 1}')).toThrow("Line 2 has no text");
  expect(() => textOfFile("a.jsonl", "{")).toThrow("Line 1 has no text");
});

const contrast = (active_a: number, active_b: number, value: number, low: number, high: number) => ({
  expert: 1,
  active_a,
  active_b,
  units_a: 1,
  units_b: 1,
  density_a: 0,
  density_b: 0,
  ratio: { value, low, high },
  activation_ratio: null,
  p_value: 0,
  q_value: 0,
});

test("the ratio is above 1 in its direction", () => {
  expect(ratioText(contrast(445, 8, 52.4, 20.2, 135.8), "a")).toEqual({ value: "× 52", interval: "20 to 136" });
  expect(ratioText(contrast(17, 1001, 0.0175, 0.005, 0.05), "b")).toEqual({ value: "× 57", interval: "20 to 200" });
  expect(ratioText(contrast(70, 10, 7.02, 2.7, 99.7), "a")).toEqual({ value: "× 7.0", interval: "2.7 to 100" });
});

test("an expert that is active in one text only has no ratio", () => {
  expect(ratioText(contrast(80, 0, 161, 11.6, 2230), "a")).toEqual({ value: "only in A", interval: "× 12 or more" });
  expect(ratioText(contrast(0, 80, 0.005, 0.0004, 0.08), "b").value).toBe("only in B");
});

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
  warning: null,
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
