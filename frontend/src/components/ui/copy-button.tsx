/** Button that copies text and confirms it. */

import { type ComponentProps, useEffect, useState } from "react";

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
