/** Text that is typed into a field: committed on Enter and blur, discarded on Escape or if it is invalid. */

import { type ChangeEvent, type KeyboardEvent, useState } from "react";

/** Whether the typed text is invalid, and the properties of the input. `value` is shown while nothing is typed. */
export function useDraft(value: string, isValid: (text: string) => boolean, onCommit: (text: string) => void) {
  const [draft, setDraft] = useState<string | null>(null);
  const invalid = draft !== null && !isValid(draft);
  const commit = () => {
    if (draft !== null && !invalid) onCommit(draft);
    setDraft(null);
  };
  const input = {
    "aria-invalid": invalid,
    value: draft ?? value,
    onChange: (event: ChangeEvent<HTMLInputElement>) => setDraft(event.target.value),
    onBlur: commit,
    onKeyDown: ({ key }: KeyboardEvent) => {
      if (key === "Enter") commit();
      if (key === "Escape") setDraft(null);
    },
  };
  return { invalid, input };
}
