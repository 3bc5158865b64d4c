/** A prompt while it is edited. Typing never waits for the URL to update. */

import { useEffect, useState } from "react";

import { rememberPrompt } from "@/lib/browser/last-prompt";

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
