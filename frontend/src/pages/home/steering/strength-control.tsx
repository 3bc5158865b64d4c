/** Strength of the edit: a slider and a choice of mode. */

import type { ExpertRow } from "@/api/types";
import { NumberInput } from "@/components/ui/number-input";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { Slider } from "@/components/ui/slider";
import { useDraggedValue } from "@/hooks/use-dragged-value";
import { NEUTRAL_STRENGTH } from "@/lib/edits/edits";
import { formatFixed } from "@/lib/text/format";
import { type HomeMode, MAX_STRENGTH } from "@/pages/home/home-params";

export interface StrengthControlProps {
  readonly row: ExpertRow;
  readonly mode: HomeMode;
  readonly strength: number;
  readonly onMode: (mode: HomeMode) => void;
  readonly onStrength: (strength: number) => void;
}

const MODE_STYLES = {
  add: { sign: "+", ticks: ["0", "+4", "+8"] },
  scale: { sign: "×", ticks: ["off", "×4", "×8"] },
} as const;

function Hint({ row, mode }: Pick<StrengthControlProps, "row" | "mode">) {
  return (
    <p className="hint">
      {mode === "add"
        ? `Added on every token, in units of the expert’s 99th percentile (${formatFixed(row.p99)}). `
        : "No effect where the expert is inactive. "}
      Drag or press <kbd>←</kbd> <kbd>→</kbd>. One sample each, same seed.
    </p>
  );
}

export function StrengthControl({ row, mode, strength, onMode, onStrength }: StrengthControlProps) {
  const { shown, drag, commit } = useDraggedValue(strength, onStrength);
  const { sign, ticks } = MODE_STYLES[mode];
  const label = `Strength of expert ${row.expert}`;
  return (
    <>
      <div className="strength">
        <SegmentedControl
          label="Edit mode"
          value={mode}
          onChange={onMode}
          segments={[
            { value: "add", label: "add" },
            { value: "scale", label: "scale" },
          ]}
        />
        <NumberInput
          label={label}
          prefix={sign}
          value={shown}
          digits={1}
          min={0}
          max={MAX_STRENGTH}
          onCommit={commit}
        />
      </div>
      <Slider
        label={label}
        value={shown}
        min={0}
        max={MAX_STRENGTH}
        step={0.1}
        neutral={NEUTRAL_STRENGTH[mode]}
        ticks={ticks.map((text, i) => ({ at: (i * MAX_STRENGTH) / 2, label: text }))}
        onChange={drag}
        onChangeEnd={commit}
      />
      <Hint row={row} mode={mode} />
    </>
  );
}
