import { describe, expect, it } from "vitest";

import type { Context } from "@/api/types";

import { passageOf, passagesOf, withPassage } from "./passages";

const context = (tokens: readonly string[], position: number) => ({ tokens, position }) as unknown as Context;

describe("passages", () => {
  it("are paragraphs, each once", () => {
    expect(passagesOf("one\nand on\n \n\n  two\n\none\nand on\n")).toEqual(["one\nand on", "two"]);
    expect(passagesOf(" \n\n ")).toEqual([]);
  });

  it("are added below what is there", () => {
    expect(withPassage("", "new")).toBe("new");
    expect(passagesOf(withPassage("old\n", "new"))).toEqual(["old", "new"]);
  });

  it("are cut out of a context where its text begins and ends", () => {
    const tokens = ["end", "<|endoftext|>", " A", " bc", "\n\n", "d", "<|endoftext|>", "next"];
    expect(passageOf(context(tokens, 3))).toBe("A bc\nd");
    expect(passageOf(context(tokens, 0))).toBe("end");
    expect(passageOf(context(tokens, 7))).toBe("next");
  });
});
