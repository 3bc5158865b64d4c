/** A command to run elsewhere, with a button that copies it. */

import { CopyButton } from "./copy-button";

export function Command({ text }: { readonly text: string }) {
  return (
    <div className="command">
      <code>{text}</code>
      <CopyButton size="small" aria-label="Copy the command" text={() => text} />
    </div>
  );
}
