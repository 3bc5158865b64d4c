/** A token with its exact characters; white space and document boundaries are shown as symbols. */

import { boundaryName, isBoundary, visibleParts } from "@/lib/text/token-text";

export function TokenChip({ text }: { readonly text: string }) {
  return (
    <span className="tk" title={isBoundary(text) ? boundaryName(text) : undefined}>
      {visibleParts(text).map((part, i) => (part.isSymbol ? <i key={i}>{part.text}</i> : part.text))}
    </span>
  );
}
