/** A row of toggle buttons of which exactly one is selected. */

import type { ReactNode } from "react";
import { ToggleButton, ToggleButtonGroup } from "react-aria-components";

interface Segment<T extends string> {
  readonly value: T;
  readonly label: ReactNode;
  /** Accessible name, required if the label is an icon. */
  readonly name?: string;
}

interface SegmentedControlProps<T extends string> {
  readonly label: string;
  readonly value: T;
  readonly segments: readonly Segment<T>[];
  readonly onChange: (value: T) => void;
  readonly className?: string;
}

/** Segments of labels by value. */
export const segmentsOf = <T extends string>(labels: Readonly<Record<T, string>>) =>
  Object.entries<string>(labels).map(([value, label]) => ({ value: value as T, label }));

export function SegmentedControl<T extends string>(props: SegmentedControlProps<T>) {
  const { label, value, segments, onChange, className = "" } = props;
  return (
    <ToggleButtonGroup
      className={`seg ${className}`}
      aria-label={label}
      selectionMode="single"
      disallowEmptySelection
      selectedKeys={[value]}
      onSelectionChange={(keys) => {
        const chosen = segments.find((segment) => keys.has(segment.value));
        if (chosen !== undefined) onChange(chosen.value);
      }}
    >
      {segments.map((segment) => (
        <ToggleButton key={segment.value} id={segment.value} {...(segment.name && { "aria-label": segment.name })}>
          {segment.label}
        </ToggleButton>
      ))}
    </ToggleButtonGroup>
  );
}
