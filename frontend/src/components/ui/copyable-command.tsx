/** A command line with a copy button. Lines break between words, not at the hyphens of an option. */

import { Fragment } from "react";

import { CopyButton } from "./copy-button";

export function Command({ text }: { readonly text: string }) {
  return (
    <div className="command">
      <code>
        {text.split(" ").map((word, i) => (
          <Fragment key={i}>
            {i > 0 && " "}
            <span>{word}</span>
          </Fragment>
        ))}
      </code>
      <CopyButton size="small" aria-label="Copy command" text={() => text} />
    </div>
  );
}
