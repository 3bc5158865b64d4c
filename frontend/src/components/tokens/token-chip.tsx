/** A token with its exact characters; white space and document boundaries are shown as symbols. */

import type { ExpertEffect } from "@/api/types";
import { formatSigned } from "@/lib/text/format";
import { boundaryName, isBoundary, visibleParts } from "@/lib/text/token-text";

export function TokenChip({ text }: { readonly text: string }) {
  return (
    <span className="tk" title={isBoundary(text) ? boundaryName(text) : undefined}>
      {visibleParts(text).map((part, i) => (part.isSymbol ? <i key={i}>{part.text}</i> : part.text))}
    </span>
  );
}

/** Whether a token is a word by itself, and no part of a word or of a character. */
export const isWholeWord = (text: string) => /^ (\p{L}{2,}|[AIa])$/u.test(text);

/** The whole words before the fragments. */
export const wordsFirst = (tokens: ExpertEffect["promoted"]): ExpertEffect["promoted"] =>
  tokens.toSorted((a, b) => Number(isWholeWord(b.text)) - Number(isWholeWord(a.text)));

/** Tokens that an expert promotes, each with the change of its logit. */
export const Promoted = ({ tokens }: { readonly tokens: ExpertEffect["promoted"] }) =>
  tokens.map(({ id, text, change }) => (
    <span key={id}>
      <TokenChip text={text} /> <span className="num up">{formatSigned(change, 2)}</span>
    </span>
  ));
