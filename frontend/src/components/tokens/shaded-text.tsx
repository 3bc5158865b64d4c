/** A few shaded, non-interactive tokens of an example on one line, for buttons, options and cards. */

import type { Example } from "@/api/types";
import { sequentialClass } from "@/lib/scales/colour-scale";
import { pieces } from "@/lib/text/kwic";
import { isBoundary, toOneLine, splitLeadingSpace } from "@/lib/text/token-text";

interface ShadedTextProps {
  readonly example: Example;
  /** Tokens before and after the peak. */
  readonly before: number;
  readonly after: number;
  /** End of the colour scale; by default the example's own activation. */
  readonly largest?: number;
}

/** Position of the first word within `before` tokens of the peak and in its document. */
function firstWord({ tokens, position }: Example, before: number): number {
  const from = Math.max(0, position - before);
  const start = from + tokens.slice(from, position).findLastIndex(isBoundary) + 1;
  if (start > from) return start;
  const word = tokens
    .slice(from, position)
    .findIndex((text, i) => text.startsWith(" ") || tokens[from + i - 1] === "\n");
  return from + Math.max(0, word);
}

export function ShadedText({ example, before, after, largest = example.activation }: ShadedTextProps) {
  return pieces(example)
    .slice(firstWord(example, before), example.position + after + 1)
    .map((piece) => {
      const { leadingSpace, body } = splitLeadingSpace(toOneLine(piece.text, true));
      const shade = sequentialClass(piece.value ?? 0, largest);
      const peak = piece.index === example.position ? " peak" : "";
      return (
        <span key={piece.index}>
          {leadingSpace}
          {shade === "" ? body : <span className={`tok ${shade}${peak}`}>{body}</span>}
        </span>
      );
    });
}
