/** A command line with a copy button. */

import { CopyButton } from "./copy-button";

export function Command({ text }: { readonly text: string }) {
  return (
    <div className="command">
      <code>{text}</code>
      <CopyButton size="small" aria-label="Copy command" text={() => text} />
    </div>
  );
}
