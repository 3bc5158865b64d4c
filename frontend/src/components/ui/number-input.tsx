/** Number field that commits on Enter or blur. Invalid input is marked and discarded. */

import { useDraft } from "@/hooks/use-values";

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

const readNumber = (text: string) => (text.trim() === "" ? NaN : Number(text.replace("−", "-")));

export function NumberInput(props: NumberInputProps) {
  const { label, value, digits, min, max, prefix: sign, unit, onCommit, isDisabled = false } = props;
  const { invalid, input } = useDraft(
    value.toFixed(digits),
    (text) => Number.isFinite(readNumber(text)),
    (text) => onCommit(Math.min(max, Math.max(min, readNumber(text)))),
  );
  return (
    <span className="field number" data-invalid={invalid || undefined} data-disabled={isDisabled || undefined}>
      {sign !== undefined && <span aria-hidden="true">{sign}</span>}
      <input
        inputMode="decimal"
        style={{ width: `${input.value.length + 0.5}ch` }}
        aria-label={label}
        disabled={isDisabled}
        {...input}
      />
      {unit !== undefined && <span className="dim">{unit}</span>}
    </span>
  );
}
