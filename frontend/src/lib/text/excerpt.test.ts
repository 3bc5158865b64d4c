import { describe, expect, it } from "vitest";

import { excerpt } from "./excerpt";

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
