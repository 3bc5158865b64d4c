/** Both sides of the trade-off at each evaluated step: the passages, and the loss increase on the retain set. */

import type { ReactNode } from "react";

import type { EvalPoint, PrivacyFineTune } from "@/api/types";
import { useTips } from "@/components/tokens/tip-layer";
import { axisLimit } from "@/lib/scales/axis-limits";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";

const WIDTH = 350;
const HEIGHT = 160;
const LEFT = 50;
const RIGHT = 346;
const TOP = 10;
const BOTTOM = 122;
/** The test part is drawn beside the selected step, with a label of its own. */
const BESIDE = 30;

interface ChartProps {
  readonly title: string;
  readonly shown: PrivacyFineTune;
  readonly value: (point: EvalPoint) => number;
  readonly format: (value: number) => string;
  /** Values that the axis includes besides those of the steps. */
  readonly include: readonly number[];
  readonly children?: (x: (step: number) => number, y: (value: number) => number) => ReactNode;
}

function StepTip({ point, isSelected }: { readonly point: EvalPoint; readonly isSelected: boolean }) {
  return (
    <>
      <div className="hd">
        <b>Step {point.step}</b>
        {isSelected && <span className="dim">selected</span>}
      </div>
      <dl>
        <dt>True token</dt>
        <dd>{formatPercent(point.protected.true_token, 1)} %</dd>
        <dt>Confidence distance</dt>
        <dd>{formatFixed(point.protected.confidence_distance, 3)}</dd>
        <dt>Divergence from uniform</dt>
        <dd>{formatFixed(point.protected.divergence)} nats</dd>
        <dt>Loss increase, validation part</dt>
        <dd>{formatSigned(point.loss_increase, 4)} nats</dd>
      </dl>
    </>
  );
}

function StepChart({ title, shown, value, format, include, children }: ChartProps) {
  const tips = useTips();
  const { eval_points: points, best_step } = shown.result;
  const values = [0, ...points.map(value), ...include];
  const [smallest, high] = [Math.min(...values), axisLimit(Math.max(...values))];
  const low = smallest < 0 ? -axisLimit(-smallest) : 0;
  const last = Math.max(1, ...points.map(({ step }) => step));
  const x = (step: number) => LEFT + 12 + ((RIGHT - LEFT - 12 - BESIDE - 12) * step) / last;
  const y = (of: number) => BOTTOM - ((BOTTOM - TOP) * (of - low)) / (high - low);
  // At most about eight step numbers fit.
  const every = Math.ceil(points.length / 8);
  return (
    <figure className="privacy-chart">
      <figcaption>
        {title} <span className="unit">(lower is better)</span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label={title}>
        {[0, high].map((of) => (
          <g key={of}>
            <path className="ax" d={`M${LEFT} ${y(of)}H${RIGHT}`} />
            <text x={LEFT - 8} y={y(of) + 4} textAnchor="end">
              {format(of)}
            </text>
          </g>
        ))}
        {points.map(({ step }, i) =>
          i % every === 0 || step === best_step ? (
            <text key={step} x={x(step)} y={BOTTOM + 16} textAnchor="middle">
              {step}
            </text>
          ) : null,
        )}
        <text x={(LEFT + RIGHT) / 2} y={HEIGHT - 4} textAnchor="middle">
          Optimisation step
        </text>
        <path className="way" d={`M${points.map((point) => `${x(point.step)} ${y(value(point))}`).join("L")}`} />
        {points.map((point) => (
          <circle
            key={point.step}
            className={point.step === best_step ? "kept" : ""}
            // The circles are read out individually.
            role="img"
            aria-label={`Step ${point.step}: ${format(value(point))}`}
            cx={x(point.step)}
            cy={y(value(point))}
            r={point.step === best_step ? 5 : 3.2}
            onPointerEnter={(event) =>
              tips.show(event.currentTarget, <StepTip point={point} isSelected={point.step === best_step} />)
            }
            onPointerLeave={tips.hide}
          />
        ))}
        {children?.(x, y)}
      </svg>
    </figure>
  );
}

export function StepCharts({ shown }: { readonly shown: PrivacyFineTune }) {
  const { result, max_added_loss: limit } = shown;
  const { loss_increase: test, confidence } = result.retained;
  return (
    <div className="privacy-charts">
      <StepChart
        title="True token on the chosen passages, %"
        shown={shown}
        value={(point) => 100 * point.protected.true_token}
        format={(value) => formatFixed(value, value >= 10 || value === 0 ? 0 : 1)}
        include={[]}
      />
      <StepChart
        title="Loss increase on the retain set, nats"
        shown={shown}
        value={(point) => point.loss_increase}
        format={(value) => formatSigned(value, 3)}
        include={[test.low, test.high]}
      >
        {(x, y) => (
          <g role="img" aria-label={`Test part: ${formatSigned(test.value, 4)}`}>
            <path className="test" d={`M${x(result.best_step) + BESIDE} ${y(test.low)}V${y(test.high)}`} />
            <rect x={x(result.best_step) + BESIDE - 4} y={y(test.value) - 4} width={8} height={8} />
            <text x={x(result.best_step) + BESIDE} y={BOTTOM + 16} textAnchor="middle">
              test
            </text>
          </g>
        )}
      </StepChart>
      <p className="privacy-notes ink2">
        Filled circle: step {result.best_step}, the selected one. Circles: the validation part, an eighth of the retain
        set, which selects the step (limit {formatFixed(limit)} nats per token). Square: the test part at step{" "}
        {result.best_step} with its 95 % interval, {formatCount(confidence.after.predictions)} predictions. It selects
        nothing; the loss increase above is from it.
      </p>
    </div>
  );
}
