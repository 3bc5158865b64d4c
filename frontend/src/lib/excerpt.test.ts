import { describe, expect, it } from "vitest";

import { excerpt } from "./excerpt";

describe("excerpt", () => {
  it("finds the whole phrase before single words, whatever the case", () => {
    expect(excerpt("It is\n  so. So IS it", "so is")).toEqual({ before: "It is so. ", match: "So IS", after: " it" });
    expect(excerpt("a b c", "x B")).toEqual({ before: "a ", match: "b", after: " c" });
  });

  it("cuts what lies far away", () => {
    const found = excerpt(`${"x".repeat(90)} may ${"y".repeat(90)}`, "may");
    expect(found.before.startsWith("…")).toBe(true);
    expect(found.before.length + found.after.length).toBeLessThan(100);
  });

  it("shows the beginning where nothing is found", () => {
    expect(excerpt("a b", "z")).toEqual({ before: "", match: "", after: "a b" });
    expect(excerpt("a b", " ")).toEqual({ before: "", match: "", after: "a b" });
  });
});
