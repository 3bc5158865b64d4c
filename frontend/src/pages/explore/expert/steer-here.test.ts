import { expect, test } from "vitest";

import { promotedIn } from "./steer-here";

const PROMOTED = [{ text: " youngest" }, { text: " childhood" }, { text: "hab" }];

test.each([
  ["a young child in the garden", "an old man in the garden", ["young", "child"]],
  ["a red car in the garden", "an old man in the garden", []],
  ["a habit of the young", "the young man", []],
])("%s holds the words that begin like promoted ones", (text, baseline, words) => {
  expect(promotedIn(text, baseline, PROMOTED)).toEqual(words);
});
