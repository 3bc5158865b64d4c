/** A command with a copy button. Lines break between words, not at the hyphens of an option. */

import { useQuery } from "@tanstack/react-query";
import { Fragment } from "react";

import { healthQuery } from "@/api/queries";

import { CopyButton } from "./copy-button";

/** Words and the white space between them, which may hold the command's own line breaks. */
const words = (text: string) => text.split(/(\s+)/);

/** The commands with the flags that lead them to the server's runs; a line of words after `--` stays last. */
function withFlags(text: string, flags: string): string {
  if (flags === "" || !text.startsWith("mxd ")) return text;
  const [command = "", rest] = text.split(" \\\n  -- ");
  const flagged = command.split(" && mxd ").map((one) => `${one} ${flags}`);
  return flagged.join(" && mxd ") + (rest === undefined ? "" : ` \\\n  -- ${rest}`);
}

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
