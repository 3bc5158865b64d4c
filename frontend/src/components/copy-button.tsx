/** Copies text, and says that it has. */

import { type ComponentProps, useEffect, useState } from "react";

import { Button } from "./button";

interface CopyButtonProps extends Omit<ComponentProps<typeof Button>, "onClick"> {
  /** Made when pressed, so that it is up to date. */
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
  const said = { idle: "", copied: "Copied", refused: "Copying was refused" }[state];
  return (
    <>
      <Button icon="copy" {...rest} {...(state === "copied" && { icon: "check" as const })} onClick={copy}>
        {children !== undefined && state !== "idle" ? said : children}
      </Button>
      <span className="sr" role="status">
        {said}
      </span>
    </>
  );
}
