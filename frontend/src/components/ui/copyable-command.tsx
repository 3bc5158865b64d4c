/** A command with a copy button. Lines break between words, not at the hyphens of an option. */

import { useQuery } from "@tanstack/react-query";
import { Fragment } from "react";

import { healthQuery } from "@/api/queries";

import { CopyButton } from "./copy-button";

/** Words and the white space between them, which may hold the command's own line breaks. */
const words = (text: string) => text.split(/(\s+)/);

/** The flags that lead a command to the server's runs; empty if it finds them without. */
export function useCommandFlags(): string {
  const { data } = useQuery(healthQuery);
  return data?.command_flags ?? "";
}

/** The flags with only the last part of each path, which is enough to recognise it. */
const shortFlags = (flags: string) => flags.replaceAll(/(^|\s|sqlite:\/+)\/?(?:[^\s/]+\/){2,}([^\s/]+)/g, "$1…/$2");

interface CodeProps {
  readonly text: string;
  /** What is displayed of it. */
  readonly shown?: string;
}

/** Text to copy, displayed with short paths in the server's flags. */
export function Code({ text, shown: displayed = text }: CodeProps) {
  const flags = useCommandFlags();
  const shown = flags === "" ? displayed : displayed.replace(flags, shortFlags(flags));
  return (
    <div className="command">
      <code title={shown === text ? undefined : text}>
        {words(shown).map((word, i) => (
          <Fragment key={i}>{/\s/.test(word) ? word : <span>{word}</span>}</Fragment>
        ))}
      </code>
      <CopyButton size="small" aria-label="Copy command" text={() => text} />
    </div>
  );
}

/** One `mxd` command, which gets the flags. */
export function Command({ text }: { readonly text: string }) {
  return <Code text={`${text} ${useCommandFlags()}`.trimEnd()} />;
}
