/** A command with a copy button. Lines break between words, not at the hyphens of an option. */

import { useQuery } from "@tanstack/react-query";
import { Fragment } from "react";

import { healthQuery } from "@/api/queries";

import { CopyButton } from "./copy-button";

/** Words and the white space between them, which may hold the command's own line breaks. */
const words = (text: string) => text.split(/(\s+)/);

/** The commands with the flags that lead them to the server's runs. */
export const withFlags = (text: string, flags: string): string =>
  flags === "" ? text : text.replaceAll(/(?:^|(?<= && ))mxd [\w-]+/g, `$& ${flags}`);

export function Command({ text }: { readonly text: string }) {
  const { data } = useQuery(healthQuery);
  const shown = withFlags(text, data?.command_flags ?? "");
  return (
    <div className="command">
      <code>
        {words(shown).map((word, i) => (
          <Fragment key={i}>{/\s/.test(word) ? word : <span>{word}</span>}</Fragment>
        ))}
      </code>
      <CopyButton size="small" aria-label="Copy command" text={() => shown} />
    </div>
  );
}
