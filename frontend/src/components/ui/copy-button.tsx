/** Buttons that copy: a text, or a command beside it. */

import { useQuery } from "@tanstack/react-query";
import { type ComponentProps, Fragment, useEffect, useState } from "react";

import { healthQuery } from "@/api/queries";

import { Button } from "./button";

interface CopyButtonProps extends Omit<ComponentProps<typeof Button>, "onClick"> {
  /** Called on press, so that the text is current. */
  readonly text: () => string;
  /** Shown once it is copied. */
  readonly confirmation?: string;
}

const SHOWN_MS = 2500;

export function CopyButton({ text, confirmation = "Copied", children, ...rest }: CopyButtonProps) {
  const [state, setState] = useState<"idle" | "copied" | "refused">("idle");
  useEffect(() => {
    if (state === "idle") return undefined;
    const timer = window.setTimeout(() => setState("idle"), SHOWN_MS);
    return () => window.clearTimeout(timer);
  }, [state]);
  const copy = () => {
    navigator.clipboard.writeText(text()).then(
      () => setState("copied"),
      () => setState("refused"),
    );
  };
  const message = { idle: "", copied: confirmation, refused: "Could not copy" }[state];
  return (
    <>
      <Button icon="copy" {...rest} {...(state === "copied" && { icon: "check" as const })} onClick={copy}>
        {children !== undefined && state !== "idle" ? message : children}
      </Button>
      <span className="sr" role="status">
        {message}
      </span>
    </>
  );
}

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
