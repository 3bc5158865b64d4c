import { describe, expect, it, test } from "vitest";

import { excerpt, noMatchText, typedExpert } from "./search-results";

describe("excerpt", () => {
  it("prefers the whole phrase to single words, ignoring case", () => {
    expect(excerpt("It is\n  so. So IS it", "so is")).toEqual({ before: "It is so. ", match: "So IS", after: " it" });
    expect(excerpt("a b c", "x B")).toEqual({ before: "a ", match: "b", after: " c" });
  });

  it("cuts off distant text", () => {
    const found = excerpt(`${"x".repeat(90)} may ${"y".repeat(90)}`, "may");
    expect(found.before.startsWith("…")).toBe(true);
    expect(found.before.length + found.after.length).toBeLessThan(100);
  });

  it("shows the beginning if nothing matches", () => {
    expect(excerpt("a b", "z")).toEqual({ before: "", match: "", after: "a b" });
    expect(excerpt("a b", " ")).toEqual({ before: "", match: "", after: "a b" });
  });
});

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
