/** Number field that commits on Enter or blur. Invalid input is marked and discarded. */

import { useState } from "react";

interface NumberInputProps {
  readonly label: string;
  readonly value: number;
  readonly digits: number;
  readonly min: number;
  readonly max: number;
  /** Prefix such as × or +. */
  readonly prefix?: string;
  readonly unit?: string;
  readonly onCommit: (value: number) => void;
  readonly isDisabled?: boolean;
}

export function NumberInput({
  label,
  value,
  digits,
  min,
  max,
  prefix: sign,
  unit,
  onCommit,
  isDisabled = false,
}: NumberInputProps) {
  const [draft, setDraft] = useState<string | null>(null);
  const invalid = draft !== null && (draft.trim() === "" || !Number.isFinite(Number(draft.replace("−", "-"))));
  const commit = () => {
    if (draft !== null && !invalid) onCommit(Math.min(max, Math.max(min, Number(draft.replace("−", "-")))));
    setDraft(null);
  };
  return (
    <span className="field number" data-invalid={invalid || undefined} data-disabled={isDisabled || undefined}>
      {sign !== undefined && <span aria-hidden="true">{sign}</span>}
      <input
        inputMode="decimal"
        style={{ width: `${(draft ?? value.toFixed(digits)).length + 0.5}ch` }}
        aria-label={label}
        aria-invalid={invalid}
        disabled={isDisabled}
        value={draft ?? value.toFixed(digits)}
        onChange={(event) => setDraft(event.target.value)}
        onBlur={commit}
        onKeyDown={(event) => {
          if (event.key === "Enter") commit();
          if (event.key === "Escape") setDraft(null);
        }}
      />
      {unit !== undefined && <span className="dim">{unit}</span>}
    </span>
  );
}
