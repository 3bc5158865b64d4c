/** A prompt as it is typed, and as the address has it: typing never waits for the address. */

import { useEffect, useState } from "react";

export interface PromptDraft {
  readonly text: string;
  readonly type: (text: string) => void;
  /** Writes what is typed into the address now. */
  readonly commit: () => void;
}

/** `pause`: milliseconds without a key after which the draft is committed by itself; null for never. */
export function usePromptDraft(prompt: string, onCommit: (prompt: string) => void, pause: number | null): PromptDraft {
  const [text, setText] = useState(prompt);
  // What we wrote may reach the address after the next key; only what others wrote replaces the draft.
  const [known, setKnown] = useState({ prompt, ours: prompt });
  if (prompt !== known.prompt) {
    setKnown({ ...known, prompt });
    if (prompt !== known.ours) setText(prompt);
  }
  const commit = () => {
    setKnown({ ...known, ours: text });
    if (text !== prompt) onCommit(text);
  };
  useEffect(() => {
    if (pause === null || text === prompt) return undefined;
    const timer = window.setTimeout(commit, pause);
    return () => window.clearTimeout(timer);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- a new key, and nothing else, starts the pause again
  }, [text, pause]);
  return { text, type: setText, commit };
}
