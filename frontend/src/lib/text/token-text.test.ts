import { describe, expect, it } from "vitest";

import { whitespaceName, toOneLine, splitLeadingSpace, visibleParts, visibleText } from "./token-text";

describe("splitLead", () => {
  it("keeps leading spaces outside the body", () => {
    expect(splitLeadingSpace(" may")).toEqual({ leadingSpace: " ", body: "may" });
    expect(splitLeadingSpace("may")).toEqual({ leadingSpace: "", body: "may" });
    expect(splitLeadingSpace("\n")).toEqual({ leadingSpace: "", body: "\n" });
  });

  it("keeps something to shade in a token of spaces", () => {
    expect(splitLeadingSpace("   ")).toEqual({ leadingSpace: "  ", body: " " });
    expect(splitLeadingSpace("")).toEqual({ leadingSpace: "", body: "" });
  });
});

describe("visible tokens", () => {
  it("show every invisible character", () => {
    expect(visibleText(" may")).toBe("␣may");
    expect(visibleText("\n\n")).toBe("↵↵");
    expect(visibleText("a\tb")).toBe("a⇥b");
    expect(visibleText("")).toBe("…");
    expect(visibleText("\u200d")).toBe("◌");
    expect(visibleText("❤\ufe0f")).toBe("❤\ufe0f");
  });

  it("join adjacent symbols", () => {
    expect(visibleParts("\n  a b")).toEqual([
      { text: "↵␣␣", isSymbol: true },
      { text: "a", isSymbol: false },
      { text: "␣", isSymbol: true },
      { text: "b", isSymbol: false },
    ]);
  });

  it("draw a document separator as a boundary", () => {
    expect(visibleText("<|endoftext|>")).toBe("‖");
    expect(visibleText("</s>")).toBe("‖");
    expect(visibleText("<|im_end|>")).toBe("‖");
    expect(visibleText("<|im_start|>")).toBe("<|im_start|>");
    expect(toOneLine("end.<|endoftext|>Once", false)).toBe("end.‖Once");
    expect(toOneLine("<s>old</s>", false)).toBe("<s>old</s>");
  });

  it("flag symbols, so that a real ␣ differs", () => {
    expect(visibleParts(" ␣")).toEqual([
      { text: "␣", isSymbol: true },
      { text: "␣", isSymbol: false },
    ]);
  });
});

describe("blankName", () => {
  it("names white space", () => {
    expect(whitespaceName(" ")).toBe("space");
    expect(whitespaceName("\n  ")).toBe("line break");
    expect(whitespaceName("<|endoftext|>")).toBe("document boundary");
    expect(whitespaceName(" may")).toBeNull();
  });
});

describe("onOneLine", () => {
  it("replaces line breaks by spaces or symbols", () => {
    expect(toOneLine("a\nb\r\nc", false)).toBe("a b c");
    expect(toOneLine("a\nb\tc", true)).toBe("a↵b⇥c");
  });
});
