import { describe, expect, it } from "vitest";

import { markdownParts, markdownPieces } from "./markdown";

const piece = (text: string, index: number) => ({ index, id: index, text, value: 0 });

describe("Markdown of a reply", () => {
  it("is drawn without its marks", () => {
    expect(markdownParts("A **bold** and *fine* `x_1`.")).toEqual([
      { text: "A ", style: "" },
      { text: "bold", style: "md-b" },
      { text: " and ", style: "" },
      { text: "fine", style: "md-i" },
      { text: " ", style: "" },
      { text: "x_1", style: "md-code" },
      { text: ".", style: "" },
    ]);
    expect(markdownParts("## Tea\n* milk\n1. sugar")).toEqual([
      { text: "Tea", style: "md-b" },
      { text: "\n• milk\n1. sugar", style: "" },
    ]);
  });

  it("leaves everything else as it is", () => {
    for (const text of ["2 * 3 * 4", "snake_case_name", "<b>html</b>", "**open", "a\n\nb"])
      expect(markdownParts(text)).toEqual([{ text, style: "" }]);
  });

  it("keeps tokens and their positions", () => {
    const tokens = ["Use", " **", "wa", "ter", "**", "."].map(piece);
    const { pieces, styles } = markdownPieces(tokens);
    expect(pieces.map(({ text, index }) => `${index}${text}`)).toEqual(["0Use", "1 ", "2wa", "3ter", "4", "5."]);
    expect(styles).toEqual(["", "md-b", "md-b", "md-b", "md-b", ""]);
  });
});
