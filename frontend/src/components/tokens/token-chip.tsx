/** A token with its exact characters; white space is shown as symbols. */

import { visibleParts } from "@/lib/text/token-text";

export function TokenChip({ text }: { readonly text: string }) {
  return (
    <span className="tk">
      {visibleParts(text).map((part, i) => (part.isSymbol ? <i key={i}>{part.text}</i> : part.text))}
    </span>
  );
}
