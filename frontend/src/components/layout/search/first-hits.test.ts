import { expect, test } from "vitest";

import { noMatchText, typedExpert } from "./first-hits";

test("a number is that of an expert of the run", () => {
  expect(["46", " #46 ", "Expert 46", "expert46"].map((text) => typedExpert(text, 47))).toEqual([46, 46, 46, 46]);
  expect(["47", "46 b", "4.6", "-46", "expert", ""].map((text) => typedExpert(text, 47))).toEqual(
    Array.from({ length: 6 }, () => null),
  );
});

test("only a number is said to be that of no expert", () => {
  expect(noMatchText("99999")).toContain("no expert has this number");
  expect(noMatchText("zzzz")).not.toContain("number");
});
