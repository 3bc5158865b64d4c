/** A command with a copy button. Lines break between words, not at the hyphens of an option. */

import { Fragment } from "react";

import { CopyButton } from "./copy-button";

/** Words and the white space between them, which may hold the command's own line breaks. */
const words = (text: string) => text.split(/(\s+)/);

export function Command({ text }: { readonly text: string }) {
  return (
    <div className="command">
      <code>
        {words(text).map((word, i) => (
          <Fragment key={i}>{/\s/.test(word) ? word : <span>{word}</span>}</Fragment>
        ))}
      </code>
      <CopyButton size="small" aria-label="Copy command" text={() => text} />
    </div>
  );
}
