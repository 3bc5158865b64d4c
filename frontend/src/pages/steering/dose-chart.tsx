/** Effect and cost over strength. Each dose can be pointed at, and taken. */

import type { KeyboardEvent } from "react";

import { useTips } from "@/components/tokens/tip-layer";
import { formatFixed, formatSigned } from "@/lib/format";
import { niceEnd } from "@/lib/nice-end";

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
          {formatFixed(point.effect)} nats, cost × {formatFixed(point.cost, 1)}, own tokens{" "}
          {formatSigned(100 * point.lift, 0)} %
        </span>
      </div>
      <p>…{point.text}</p>
    </div>
  );
}

/** Where values lie in the drawing. Cost is drawn by its logarithm: twice as dear is as far everywhere. */
function scales(points: readonly DosePoint[]) {
  const strengths = points.map((point) => point.strength);
  const [first, last] = [Math.min(...strengths), Math.max(...strengths)];
  const most = niceEnd(Math.max(...points.map((point) => point.effect), 0.01));
  const dearest = Math.max(2, ...points.map((point) => point.cost));
  const clamp = (share: number) => Math.min(1, Math.max(0, share));
  return {
    most,
    dearest,
    x: (strength: number) => LEFT + (RIGHT - LEFT) * clamp((strength - first) / (last - first)),
    effect: (value: number) => BOTTOM - (BOTTOM - TOP) * clamp(value / most),
    cost: (value: number) => BOTTOM - (BOTTOM - TOP) * clamp(Math.log(value) / Math.log(dearest)),
  };
}

const line = (places: readonly (readonly [number, number])[]) => `M${places.map(([x, y]) => `${x} ${y}`).join("L")}`;

type Scales = ReturnType<typeof scales>;

function Axes({
  at,
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
        const y = at.effect(share * at.most);
        return (
          <g key={share}>
            <path className="ax" d={`M${LEFT} ${y}H${RIGHT}`} />
            <text x={LEFT - 8} y={y + 4} textAnchor="end">
              {Number((share * at.most).toPrecision(3))}
            </text>
          </g>
        );
      })}
      {points.map(({ strength }) => (
        <text key={strength} x={at.x(strength)} y={BOTTOM + 17} textAnchor="middle">
          {describe(strength)}
        </text>
      ))}
      <text x={RIGHT + 10} y={BOTTOM + 4}>
        × 1
      </text>
      <text x={RIGHT + 10} y={TOP + 4}>
        × {formatFixed(at.dearest, 1)}
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
    <svg className="dose-chart" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} aria-label="Effect and cost by strength">
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
            aria-label={`${name}: ${formatFixed(point.effect)} nats a token, perplexity × ${formatFixed(point.cost, 1)}`}
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
