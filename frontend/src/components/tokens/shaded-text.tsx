/** A few tokens of a context on one line, shaded but not to be acted on: inside buttons, options and cards. */

import type { Context } from "@/api/types";
import { sequentialClass } from "@/lib/colour-scale";
import { pieces } from "@/lib/kwic";
import { onOneLine, splitLead } from "@/lib/token-text";

interface ShadedTextProps {
  readonly context: Context;
  /** Tokens before and after the one it is kept for. */
  readonly before: number;
  readonly after: number;
  /** End of the colour scale; the context's own coefficient where the expert's largest is not known. */
  readonly largest?: number;
}

export function ShadedText({ context, before, after, largest = context.coefficient }: ShadedTextProps) {
  const from = Math.max(0, context.position - before);
  return pieces(context)
    .slice(from, context.position + after + 1)
    .map((piece) => {
      const { lead, body } = splitLead(onOneLine(piece.text, false));
      const shade = sequentialClass(piece.value ?? 0, largest);
      const peak = piece.index === context.position ? " peak" : "";
      return (
        <span key={piece.index}>
          {lead}
          {shade === "" ? body : <span className={`tok ${shade}${peak}`}>{body}</span>}
        </span>
      );
    });
}
