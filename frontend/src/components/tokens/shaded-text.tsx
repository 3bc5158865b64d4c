/** A few shaded, non-interactive tokens of an example on one line, for buttons, options and cards. */

import type { Example } from "@/api/types";
import { sequentialClass } from "@/lib/scales/colour-scale";
import { pieces } from "@/lib/text/kwic";
import { toOneLine, splitLeadingSpace } from "@/lib/text/token-text";

interface ShadedTextProps {
  readonly example: Example;
  /** Tokens before and after the peak. */
  readonly before: number;
  readonly after: number;
  /** End of the colour scale; by default the example's own activation. */
  readonly largest?: number;
}

export function ShadedText({ example, before, after, largest = example.activation }: ShadedTextProps) {
  const from = Math.max(0, example.position - before);
  return pieces(example)
    .slice(from, example.position + after + 1)
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
