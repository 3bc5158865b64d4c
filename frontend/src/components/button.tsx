/** Buttons and links that look like buttons. */

import type { ComponentProps, ReactNode } from "react";
import { Link } from "react-router";

import { keyCap, type ShortcutId } from "@/lib/shortcuts";

import { Icon, type IconName } from "./icon";

interface Look {
  readonly variant?: "plain" | "primary" | "ghost" | "chosen";
  readonly size?: "normal" | "small";
  readonly icon?: IconName;
  /** The key that does the same, shown on the button. */
  readonly shortcut?: ShortcutId;
  /** Without text, an `aria-label` must say what it does. */
  readonly children?: ReactNode;
}

const VARIANTS = { plain: "", primary: "primary", ghost: "ghost", chosen: "on" } as const;

function classes({ variant = "plain", size = "normal", children }: Look, more: string | undefined): string {
  const parts = ["btn", VARIANTS[variant], size === "small" ? "sm" : "", children === undefined ? "icon" : "", more];
  return parts.filter(Boolean).join(" ");
}

function Inside({ icon, shortcut, children }: Look) {
  return (
    <>
      {icon !== undefined && <Icon name={icon} />}
      {children}
      {shortcut !== undefined && <kbd aria-hidden="true">{keyCap(shortcut)}</kbd>}
    </>
  );
}

export function Button({
  variant,
  size,
  icon,
  shortcut,
  children,
  className,
  ...rest
}: Look & ComponentProps<"button">) {
  const look = { variant, size, icon, shortcut, children } as Look;
  return (
    <button type="button" className={classes(look, className)} {...rest}>
      <Inside {...look} />
    </button>
  );
}

export function LinkButton({
  variant,
  size,
  icon,
  shortcut,
  children,
  className,
  ...rest
}: Look & ComponentProps<typeof Link>) {
  const look = { variant, size, icon, shortcut, children } as Look;
  return (
    <Link className={classes(look, className)} {...rest}>
      <Inside {...look} />
    </Link>
  );
}
