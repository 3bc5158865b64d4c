/** Dose curve: effect and cost by strength. Each point can be hovered, and clicked to use its strength. */

import type { KeyboardEvent } from "react";

import { useTips } from "@/components/tokens/tip-layer";
import { axisLimit } from "@/lib/scales/axis-limits";
import { formatFixed, formatSigned } from "@/lib/text/format";

import type { DosePoint } from "./dose";

interface DoseChartProps {
  readonly points: readonly DosePoint[];
  readonly current: number;
  readonly describe: (strength: number) => string;
  readonly onChoose: (strength: number) => void;
}

const WIDTH = 400;
const HEIGHT = 160;
const LEFT = 34;
const RIGHT = 322;
const TOP = 12;
const BOTTOM = 132;

function DoseTip({ point, name }: { readonly point: DosePoint; readonly name: string }) {
  return (
    <div className="dose-tip">
      <div className="hd">
        <b>{name}</b>
        <span className="dim">
          {formatFixed(point.effect)} nats per token, perplexity × {formatFixed(point.cost, 1)}, promoted tokens{" "}
          {formatSigned(100 * point.lift, 0)} %
        </span>
      </div>
      <p>…{point.text}</p>
    </div>
  );
}

/** Scales of the chart. Cost is on a log scale. */
function scales(points: readonly DosePoint[]) {
  const strengths = points.map((point) => point.strength);
  const [first, last] = [Math.min(...strengths), Math.max(...strengths)];
  const maxEffect = axisLimit(Math.max(...points.map((point) => point.effect), 0.01));
  const maxCost = Math.max(2, ...points.map((point) => point.cost));
  const clamp = (share: number) => Math.min(1, Math.max(0, share));
  return {
    maxEffect,
    maxCost,
    x: (strength: number) => LEFT + (RIGHT - LEFT) * clamp((strength - first) / (last - first)),
    effect: (value: number) => BOTTOM - (BOTTOM - TOP) * clamp(value / maxEffect),
    cost: (value: number) => BOTTOM - (BOTTOM - TOP) * clamp(Math.log(value) / Math.log(maxCost)),
  };
}

const line = (places: readonly (readonly [number, number])[]) => `M${places.map(([x, y]) => `${x} ${y}`).join("L")}`;

type Scales = ReturnType<typeof scales>;

function Axes({
  at: axes,
  points,
  describe,
}: {
  at: Scales;
  points: readonly DosePoint[];
  describe: DoseChartProps["describe"];
}) {
  return (
    <>
      {[0, 0.5, 1].map((share) => {
        const y = axes.effect(share * axes.maxEffect);
        return (
          <g key={share}>
            <path className="ax" d={`M${LEFT} ${y}H${RIGHT}`} />
            <text x={LEFT - 8} y={y + 4} textAnchor="end">
              {Number((share * axes.maxEffect).toPrecision(3))}
            </text>
          </g>
        );
      })}
      {points.map(({ strength }) => (
        <text key={strength} x={axes.x(strength)} y={BOTTOM + 17} textAnchor="middle">
          {describe(strength)}
        </text>
      ))}
      <text x={RIGHT + 10} y={BOTTOM + 4}>
        × 1
      </text>
      <text x={RIGHT + 10} y={TOP + 4}>
        × {formatFixed(axes.maxCost, 1)}
      </text>
    </>
  );
}

export function DoseChart({ points, current, describe, onChoose }: DoseChartProps) {
  const tips = useTips();
  const at = scales(points);
  const onKeyDown = (event: KeyboardEvent, strength: number) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onChoose(strength);
  };
  return (
    <svg className="dose-chart" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} aria-label="Dose curve: effect and cost by strength">
      <Axes at={at} points={points} describe={describe} />
      <path d={`M${at.x(current)} ${TOP - 8}V${BOTTOM}`} stroke="var(--ink)" />
      <path className="cost" d={line(points.map((point) => [at.x(point.strength), at.cost(point.cost)]))} />
      <path className="effect" d={line(points.map((point) => [at.x(point.strength), at.effect(point.effect)]))} />
      {points.map((point) => {
        const name = describe(point.strength);
        const show = (target: Element) => tips.show(target, <DoseTip point={point} name={name} />);
        return (
          <circle
            key={point.strength}
            role="button"
            tabIndex={0}
            aria-label={`${name}: ${formatFixed(point.effect)} nats per token, perplexity × ${formatFixed(point.cost, 1)}`}
            cx={at.x(point.strength)}
            cy={at.effect(point.effect)}
            r={4}
            onPointerEnter={(event) => show(event.currentTarget)}
            onPointerLeave={tips.hide}
            onFocus={(event) => show(event.currentTarget)}
            onBlur={tips.hide}
            onClick={() => onChoose(point.strength)}
            onKeyDown={(event) => onKeyDown(event, point.strength)}
          />
        );
      })}
    </svg>
  );
}
