/** A box for a prompt, the prompt while it is edited, and what is shown until there is a result. */

import { useQuery } from "@tanstack/react-query";
import { type CSSProperties, type KeyboardEvent, type ReactNode, useEffect, useRef, useState } from "react";

import { healthQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { useShortcut } from "@/hooks/use-shortcut";
import { rememberPrompt } from "@/lib/browser/stores";

interface PromptBoxProps {
  readonly label: string;
  readonly placeholder: string;
  readonly draft: PromptDraft;
  /** By default, the draft is committed. */
  readonly onSubmit?: () => void;
  /** What an empty box does when the page opens. A box far down a page leaves the focus, so that shortcuts work. */
  readonly onOpen?: "take-focus" | "leave-focus";
  /** What Enter does without Ctrl or ⌘. */
  readonly onEnter?: "new-line" | "submit";
}

const isApple = /Mac|iPhone|iPad/.test(navigator.userAgent);
/** Label of the key combination that submits. */
export const SUBMIT_KEY = isApple ? "⌘ ↵" : "Ctrl ↵";

export function PromptBox({ label, placeholder, draft, onSubmit = draft.commit, ...props }: PromptBoxProps) {
  const { text, setText } = draft;
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
    <div className="prompt-box" data-text={`${text}\u200b`}>
      <textarea
        ref={box}
        rows={1}
        aria-label={label}
        placeholder={placeholder}
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
      />
    </div>
  );
}

export interface PromptDraft {
  readonly text: string;
  readonly setText: (text: string) => void;
  /** Write the text to the URL now. */
  readonly commit: () => void;
}

interface UrlHistory {
  /** Prompt in the URL at the last render. */
  readonly prompt: string;
  /**
   * Committed texts that the URL has not shown yet, oldest first. The URL may only show them after the next key
   * press.
   */
  readonly committed: readonly string[];
}

/**
 * `pause`: milliseconds without a key press before the draft is committed; null for manual commits only. The uncommitted
 * draft then follows to other pages.
 */
export function usePromptDraft(prompt: string, onCommit: (prompt: string) => void, pause: number | null): PromptDraft {
  const [text, setText] = useState(prompt);
  const [history, setHistory] = useState<UrlHistory>({ prompt, committed: [] });
  if (prompt !== history.prompt) {
    const committedIndex = history.committed.indexOf(prompt);
    setHistory({ prompt, committed: committedIndex === -1 ? [] : history.committed.slice(committedIndex + 1) });
    // Only a foreign change of the URL, such as a link or the Back button, replaces the draft.
    if (committedIndex === -1) setText(prompt);
  }
  const commit = () => {
    if (text === prompt) return;
    setHistory((before) => ({ ...before, committed: [...before.committed, text] }));
    onCommit(text);
  };
  useEffect(() => {
    if (pause === null || text === prompt) return undefined;
    const timer = window.setTimeout(commit, pause);
    return () => window.clearTimeout(timer);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- only a key press or a URL change restarts the timer
  }, [text, prompt, pause]);
  const type = (next: string) => {
    setText(next);
    if (pause === null) rememberPrompt(next);
  };
  return { text, setText: type, commit };
}

/** Whether the language model is in memory; undefined until it is known. */
export function useIsLoaded(run: RunSummary): boolean | undefined {
  const { data } = useQuery(healthQuery);
  return data?.language_models.some(({ name }) => name === run.language_model_name);
}

interface PromptLoadingProps {
  readonly run: RunSummary;
  /** What the model does, such as `Routing`. */
  readonly label: string;
  /** What becomes a heat map with about as many columns as it has tokens; without it, the shapes are those of layers. */
  readonly text?: string;
  /** Whether the result has a panel beside it. */
  readonly hasPanel?: boolean;
  /** Progress, and how to stop it. */
  readonly children?: ReactNode;
}

/** Faint shapes in place of what a prompt leads to, and what is waited for. */
export function PromptLoading({ run, label, text = "", hasPanel = false, children }: PromptLoadingProps) {
  const isFirst = useIsLoaded(run) === false;
  const columns = text.match(/[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu)?.length ?? 1;
  return (
    <div className={hasPanel ? "prompted-columns" : undefined}>
      <div className="prompted-empty">
        <p className="ghost-status" role="status">
          {isFirst ? `Loading the language model ${run.language_model_name} first …` : `${label} …`} {children}
        </p>
        <div
          className={text === "" ? "ghost-rows" : "ghost-grid"}
          style={{ "--columns": columns } as CSSProperties}
          aria-hidden="true"
        />
      </div>
      {hasPanel && <div className="token-panel" />}
    </div>
  );
}
