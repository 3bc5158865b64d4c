/** A prompt as it is typed, and as the address has it: typing never waits for the address. */

import { useEffect, useState } from "react";

export interface PromptDraft {
  readonly text: string;
  readonly type: (text: string) => void;
  /** Writes what is typed into the address now. */
  readonly commit: () => void;
}

interface Known {
  /** What the address said last. */
  readonly prompt: string;
  /** What we have written that it is still to say, oldest first: it may come to say it after the next key. */
  readonly written: readonly string[];
}

/** `pause`: milliseconds without a key after which the draft is committed by itself; null for never. */
export function usePromptDraft(prompt: string, onCommit: (prompt: string) => void, pause: number | null): PromptDraft {
  const [text, setText] = useState(prompt);
  const [known, setKnown] = useState<Known>({ prompt, written: [] });
  if (prompt !== known.prompt) {
    const ours = known.written.indexOf(prompt);
    setKnown({ prompt, written: ours === -1 ? [] : known.written.slice(ours + 1) });
    // Only what others wrote, such as a link or the Back button, replaces what is typed.
    if (ours === -1) setText(prompt);
  }
  const commit = () => {
    if (text === prompt) return;
    setKnown((before) => ({ ...before, written: [...before.written, text] }));
    onCommit(text);
  };
  useEffect(() => {
    if (pause === null || text === prompt) return undefined;
    const timer = window.setTimeout(commit, pause);
    return () => window.clearTimeout(timer);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- a new key or a new address, and nothing else, starts the pause again
  }, [text, prompt, pause]);
  return { text, type: setText, commit };
}
