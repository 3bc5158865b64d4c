/** A token by its exact characters: white space is shown as signs. */

import { visibleParts } from "@/lib/token-text";

export function TokenChip({ text }: { readonly text: string }) {
  return (
    <span className="tk">
      {visibleParts(text).map((part, i) => (part.sign ? <i key={i}>{part.text}</i> : part.text))}
    </span>
  );
}
