/**
 * A slider with a tick at its neutral value. Arrow keys move by one step, with Shift by ten, Home and End to the
 * ends; a double click resets to neutral.
 */

import type { KeyboardEvent } from "react";
import { Slider as AriaSlider, SliderThumb, SliderTrack } from "react-aria-components";

export interface SliderTick {
  readonly at: number;
  readonly label: string;
}

interface SliderProps {
  readonly label: string;
  readonly value: number;
  readonly min: number;
  readonly max: number;
  readonly step: number;
  readonly neutral: number;
  readonly ticks: readonly SliderTick[];
  readonly onChange: (value: number) => void;
  /** Called once, on release. */
  readonly onChangeEnd?: (value: number) => void;
  readonly isDisabled?: boolean;
}

function percent(value: number, min: number, max: number): number {
  return (100 * (Math.min(max, Math.max(min, value)) - min)) / (max - min);
}

function Ticks({ min, max, ticks }: Pick<SliderProps, "min" | "max" | "ticks">) {
  return (
    <div className="tickmarks" aria-hidden="true">
      {ticks.map((tick) => (
        <span key={tick.at} style={{ left: `${percent(tick.at, min, max)}%` }}>
          {tick.label}
        </span>
      ))}
    </div>
  );
}

const STEPS_WITH_SHIFT = 10;
const DIRECTIONS: Readonly<Record<string, number>> = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };

export function Slider({ label, value, min, max, step, neutral, ticks, onChange, ...rest }: SliderProps) {
  const { onChangeEnd, isDisabled = false } = rest;
  const from = percent(neutral, min, max);
  const to = percent(value, min, max);
  const reset = () => {
    onChange(neutral);
    onChangeEnd?.(neutral);
  };
  // React Aria moves by a tenth of the range on Shift, which is not a whole number of steps on every slider.
  const onKeyDownCapture = (event: KeyboardEvent) => {
    const direction = DIRECTIONS[event.key];
    if (!event.shiftKey || direction === undefined || isDisabled) return;
    event.preventDefault();
    event.stopPropagation();
    const far = Math.min(max, Math.max(min, value + direction * STEPS_WITH_SHIFT * step));
    const next = Number(far.toFixed(6));
    onChange(next);
    onChangeEnd?.(next);
  };
  return (
    <div onKeyDownCapture={onKeyDownCapture}>
      <AriaSlider
        className={isDisabled ? "slider off" : "slider"}
        aria-label={label}
        value={Math.min(max, Math.max(min, value))}
        minValue={min}
        maxValue={max}
        step={step}
        isDisabled={isDisabled}
        onChange={(next) => onChange(next)}
        onChangeEnd={(next) => onChangeEnd?.(next)}
      >
        <SliderTrack className="rest" onDoubleClick={reset}>
          <span className="track" />
          <span className="fillb" style={{ left: `${Math.min(from, to)}%`, width: `${Math.abs(to - from)}%` }} />
          <span className="zero" style={{ left: `${from}%` }} />
          <SliderThumb className="thumb" />
        </SliderTrack>
      </AriaSlider>
      <Ticks min={min} max={max} ticks={ticks} />
    </div>
  );
}
