import type { ComponentProps, ReactNode } from "react";
import { Link } from "react-router";

import { keyCap, type ShortcutId } from "@/lib/browser/shortcuts";

import { Icon, type IconName } from "./icon";

interface ButtonStyle {
  readonly variant?: "plain" | "primary" | "ghost" | "chosen";
  readonly size?: "normal" | "small";
  readonly icon?: IconName;
  /** Keyboard shortcut of the same action, shown on the button. */
  readonly shortcut?: ShortcutId;
  /** Without children, an `aria-label` is required. */
  readonly children?: ReactNode;
}

const VARIANTS = { plain: "", primary: "primary", ghost: "ghost", chosen: "on" } as const;

function classes({ variant = "plain", size = "normal", children }: ButtonStyle, className: string | undefined): string {
  const parts = [
    "btn",
    VARIANTS[variant],
    size === "small" ? "sm" : "",
    children === undefined ? "icon" : "",
    className,
  ];
  return parts.filter(Boolean).join(" ");
}

function ButtonContent({ icon, shortcut, children }: ButtonStyle) {
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
}: ButtonStyle & ComponentProps<"button">) {
  const style = { variant, size, icon, shortcut, children } as ButtonStyle;
  return (
    <button type="button" className={classes(style, className)} {...rest}>
      <ButtonContent {...style} />
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
}: ButtonStyle & ComponentProps<typeof Link>) {
  const look = { variant, size, icon, shortcut, children } as ButtonStyle;
  return (
    <Link className={classes(look, className)} {...rest}>
      <ButtonContent {...look} />
    </Link>
  );
}

/** React Aria's button, required as the trigger of its menus and popovers. */
export { Button as TriggerButton } from "react-aria-components";
