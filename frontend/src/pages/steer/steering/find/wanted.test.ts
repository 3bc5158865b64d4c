import { expect, test } from "vitest";

import { wantedTexts } from "./wanted";

test("a wanted word gets the space that separates it from the prompt", () => {
  expect(wantedTexts("medicine", "to take the")).toEqual([" medicine"]);
  expect(wantedTexts(" medicine ", "to take the ")).toEqual(["medicine"]);
  expect(wantedTexts("medicine", "line\n")).toEqual(["medicine"]);
  expect(wantedTexts("medicine", "")).toEqual(["medicine"]);
});

test("punctuation follows without a space, an opening quotation mark with one", () => {
  expect(wantedTexts("!", "to take the")).toEqual(["!"]);
  expect(wantedTexts("“Yes", "He said")).toEqual([" “Yes"]);
});

test("alternatives are separated by a vertical bar", () => {
  expect(wantedTexts("sea | the beach |", "went to")).toEqual([" sea", " the beach"]);
  expect(wantedTexts(" | ", "went to")).toEqual([]);
});
