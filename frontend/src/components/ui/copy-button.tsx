/** Button that copies text and confirms it. */

import { type ComponentProps, useEffect, useState } from "react";

import { Button } from "./button";

interface CopyButtonProps extends Omit<ComponentProps<typeof Button>, "onClick"> {
  /** Called on press, so that the text is current. */
  readonly text: () => string;
}

export function CopyButton({ text, children, ...rest }: CopyButtonProps) {
  const [state, setState] = useState<"idle" | "copied" | "refused">("idle");
  useEffect(() => {
    if (state === "idle") return undefined;
    const timer = window.setTimeout(() => setState("idle"), 1600);
    return () => window.clearTimeout(timer);
  }, [state]);
  const copy = () => {
    navigator.clipboard.writeText(text()).then(
      () => setState("copied"),
      () => setState("refused"),
    );
  };
  const message = { idle: "", copied: "Copied", refused: "Could not copy" }[state];
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
