import { describe, expect, it } from "vitest";

import type { Context } from "@/api/types";

import { contextPassage, splitPassages, appendPassage } from "./passages";

const context = (tokens: readonly string[], position: number) => ({ tokens, position }) as unknown as Context;

describe("passages", () => {
  it("are distinct paragraphs", () => {
    expect(splitPassages("one\nand on\n \n\n  two\n\none\nand on\n")).toEqual(["one\nand on", "two"]);
    expect(splitPassages(" \n\n ")).toEqual([]);
  });

  it("are appended", () => {
    expect(appendPassage("", "new")).toBe("new");
    expect(splitPassages(appendPassage("old\n", "new"))).toEqual(["old", "new"]);
  });

  it("are cut out of an example at document boundaries", () => {
    const tokens = ["end", "<|endoftext|>", " A", " bc", "\n\n", "d", "<|endoftext|>", "next"];
    expect(contextPassage(context(tokens, 3))).toBe("A bc\nd");
    expect(contextPassage(context(tokens, 0))).toBe("end");
    expect(contextPassage(context(tokens, 7))).toBe("next");
  });
});
