/**
 * A text area for prompts that grows with its text. Ctrl or ⌘ with Enter submits, and Enter alone if the text has one
 * line by nature; the shortcut E focuses it.
 */

import { type KeyboardEvent, useEffect, useRef } from "react";

import { useShortcut } from "@/hooks/use-shortcut";

interface PromptBoxProps {
  readonly label: string;
  readonly placeholder: string;
  readonly value: string;
  readonly onChange: (text: string) => void;
  readonly onSubmit: () => void;
  /** What an empty box does when the page opens. A box far down a page leaves the focus, so that shortcuts work. */
  readonly onOpen?: "take-focus" | "leave-focus";
  /** What Enter does without Ctrl or ⌘. */
  readonly onEnter?: "new-line" | "submit";
}

const isApple = /Mac|iPhone|iPad/.test(navigator.userAgent);
/** Label of the key combination that submits. */
export const SUBMIT_KEY = isApple ? "⌘ ↵" : "Ctrl ↵";

export function PromptBox({ label, placeholder, value, onChange, onSubmit, ...props }: PromptBoxProps) {
  const { onOpen = "take-focus", onEnter = "new-line" } = props;
  const box = useRef<HTMLTextAreaElement>(null);
  useShortcut("prompt", () => box.current?.focus());
  // An empty prompt is about to be typed: without the focus, its letters would be shortcuts. Not on touch screens, where
  // the focus would open a keyboard.
  useEffect(() => {
    if (onOpen === "leave-focus" || box.current?.value !== "") return;
    if (matchMedia("(hover: hover)").matches) box.current.focus({ preventScroll: true });
  }, [onOpen]);
  const onKeyDown = (event: KeyboardEvent) => {
    const submits = onEnter === "submit" || event.ctrlKey || event.metaKey;
    if (event.key !== "Enter" || !submits || event.nativeEvent.isComposing) return;
    event.preventDefault();
    onSubmit();
  };
  return (
    // An invisible copy of the text behind the text area sets its height.
    <div className="prompt-box" data-text={`${value}\u200b`}>
      <textarea
        ref={box}
        rows={1}
        aria-label={label}
        placeholder={placeholder}
        spellCheck={false}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={onKeyDown}
      />
    </div>
  );
}
