import { describe, expect, it } from "vitest";

import { blankName, onOneLine, splitLead, visibleParts, visibleText } from "./token-text";

describe("splitLead", () => {
  it("keeps leading spaces outside the body", () => {
    expect(splitLead(" may")).toEqual({ lead: " ", body: "may" });
    expect(splitLead("may")).toEqual({ lead: "", body: "may" });
    expect(splitLead("\n")).toEqual({ lead: "", body: "\n" });
  });

  it("leaves something to shade in a token of spaces", () => {
    expect(splitLead("   ")).toEqual({ lead: "  ", body: " " });
    expect(splitLead("")).toEqual({ lead: "", body: "" });
  });
});

describe("visible tokens", () => {
  it("names every invisible character", () => {
    expect(visibleText(" may")).toBe("␣may");
    expect(visibleText("\n\n")).toBe("↵↵");
    expect(visibleText("a\tb")).toBe("a⇥b");
    expect(visibleText("")).toBe("…");
  });

  it("keeps signs that stand together in one part", () => {
    expect(visibleParts("\n  a b")).toEqual([
      { text: "↵␣␣", sign: true },
      { text: "a", sign: false },
      { text: "␣", sign: true },
      { text: "b", sign: false },
    ]);
  });

  it("marks stand-ins, so that a real ␣ differs", () => {
    expect(visibleParts(" ␣")).toEqual([
      { text: "␣", sign: true },
      { text: "␣", sign: false },
    ]);
  });
});

describe("blankName", () => {
  it("names what cannot be seen", () => {
    expect(blankName(" ")).toBe("space");
    expect(blankName("\n  ")).toBe("line break");
    expect(blankName(" may")).toBeNull();
  });
});

describe("onOneLine", () => {
  it("joins lines with a space or a sign", () => {
    expect(onOneLine("a\nb\r\nc", false)).toBe("a b c");
    expect(onOneLine("a\nb\tc", true)).toBe("a↵b⇥c");
  });
});
