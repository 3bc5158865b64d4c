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

/** The attributes of a button or link in the style. */
function styled<P extends { readonly className?: string | undefined }>(props: ButtonStyle & P) {
  const { variant = "plain", size = "normal", icon, shortcut, children, className, ...rest } = props;
  const parts = ["btn", VARIANTS[variant], size === "small" && "sm", children === undefined && "icon", className];
  const content = (
    <>
      {icon !== undefined && <Icon name={icon} />}
      {children}
      {shortcut !== undefined && <kbd aria-hidden="true">{keyCap(shortcut)}</kbd>}
    </>
  );
  return { ...rest, className: parts.filter(Boolean).join(" "), children: content };
}

export function Button(props: ButtonStyle & ComponentProps<"button">) {
  return <button type="button" {...styled(props)} />;
}

/** A small button without a border, for what is beside the subject. */
export function GhostButton(props: ButtonStyle & ComponentProps<"button">) {
  return <Button size="small" variant="ghost" {...props} />;
}

interface UnfoldProps extends Omit<ComponentProps<typeof Button>, "onClick"> {
  readonly isOpen: boolean;
  readonly onOpen: (isOpen: boolean) => void;
}

/** Unfolds what follows it, with the chevron of a summary. */
export function UnfoldButton({ isOpen, onOpen, className = "", ...rest }: UnfoldProps) {
  const classes = `unfold ${className}`;
  return (
    <Button variant="ghost" {...rest} className={classes} aria-expanded={isOpen} onClick={() => onOpen(!isOpen)} />
  );
}

/** The × of a chip. */
export function RemoveChip({ label, onRemove }: { readonly label: string; readonly onRemove: () => void }) {
  return (
    <button type="button" className="x" aria-label={label} onClick={onRemove}>
      ×
    </button>
  );
}

export function LinkButton(props: ButtonStyle & ComponentProps<typeof Link>) {
  return <Link {...styled<ComponentProps<typeof Link>>(props)} />;
}

/** React Aria's button, required as the trigger of its menus and popovers. */
export { Button as TriggerButton } from "react-aria-components";
