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

/** A text that the browser does not copy, as on pages without HTTPS: selected, to copy it by hand. */
function CopyByHand({ text, onClose }: { readonly text: string; readonly onClose: () => void }) {
  return (
    <dialog
      className="popover by-hand"
      aria-label="Copy by hand"
      ref={(dialog) => dialog?.showModal()}
      onClose={onClose}
    >
      <p>The browser denies access to the clipboard. Copy the selected text with Ctrl+C or ⌘C.</p>
      <textarea readOnly aria-label="Text to copy" value={text} onFocus={(event) => event.target.select()} />
      <form method="dialog">
        <Button type="submit">Close</Button>
      </form>
    </dialog>
  );
}

export function CopyButton({ text, confirmation = "Copied", children, ...rest }: CopyButtonProps) {
  const [isCopied, setCopied] = useState(false);
  const [refused, setRefused] = useState<string | null>(null);
  useEffect(() => {
    if (!isCopied) return undefined;
    const timer = window.setTimeout(() => setCopied(false), SHOWN_MS);
    return () => window.clearTimeout(timer);
  }, [isCopied]);
  const copy = async () => {
    const copied = text();
    try {
      await navigator.clipboard.writeText(copied);
      setCopied(true);
    } catch {
      setRefused(copied);
    }
  };
  return (
    <>
      <Button icon="copy" {...rest} {...(isCopied && { icon: "check" as const })} onClick={() => void copy()}>
        {children !== undefined && isCopied ? confirmation : children}
      </Button>
      <span className="sr" role="status">
        {isCopied && confirmation}
      </span>
      {refused !== null && <CopyByHand text={refused} onClose={() => setRefused(null)} />}
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
