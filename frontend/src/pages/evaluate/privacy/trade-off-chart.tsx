/**
 * Trade-off over the optimisation steps: divergence from uniform on the passages against loss increase on the retain
 * set, with the bound.
 */

import type { EvalPoint, PrivacyResult } from "@/api/types";
import { useTips } from "@/components/tokens/tip-layer";
import { axisLimit } from "@/lib/scales/axis-limits";
import { formatFixed, formatSigned } from "@/lib/text/format";

const WIDTH = 420;
const HEIGHT = 220;
const LEFT = 44;
const RIGHT = 404;
const TOP = 14;
const BOTTOM = 180;

const passageLoss = (result: PrivacyResult, { protected: found }: EvalPoint) =>
  result.loss === "kl-from-uniform" ? found.divergence : found.missing_entropy;

function scales(result: PrivacyResult) {
  const added = result.eval_points.map((step) => step.loss_increase);
  const [low, maxAdded] = [Math.min(0, ...added), axisLimit(Math.max(0.01, ...added))];
  const maxLoss = axisLimit(
    Math.max(result.bound.bound, ...result.eval_points.map((step) => passageLoss(result, step))),
  );
  return {
    maxAdded,
    maxLoss,
    x: (value: number) => LEFT + ((RIGHT - LEFT) * (value - low)) / (maxAdded - low),
    y: (value: number) => BOTTOM - ((BOTTOM - TOP) * Math.max(0, value)) / maxLoss,
  };
}

type Scales = ReturnType<typeof scales>;

function Axes({ axes }: { readonly axes: Scales }) {
  return (
    <>
      {[0, 0.5, 1].map((share) => (
        <g key={share}>
          <path className="ax" d={`M${LEFT} ${axes.y(share * axes.maxLoss)}H${RIGHT}`} />
          <text x={LEFT - 8} y={axes.y(share * axes.maxLoss) + 4} textAnchor="end">
            {Number((share * axes.maxLoss).toPrecision(3))}
          </text>
          <text x={axes.x(share * axes.maxAdded)} y={BOTTOM + 17} textAnchor="middle">
            {Number((share * axes.maxAdded).toPrecision(3))}
          </text>
        </g>
      ))}
      <text x={(LEFT + RIGHT) / 2} y={HEIGHT - 6} textAnchor="middle">
        Loss increase on the retain set, nats per token
      </text>
    </>
  );
}

function StepTip({ step, result }: { readonly step: EvalPoint; readonly result: PrivacyResult }) {
  return (
    <>
      <div className="hd">
        <b>Step {step.step}</b>
        {step.step === result.best_step && <span className="dim">selected</span>}
      </div>
      <dl>
        <dt>Divergence from uniform</dt>
        <dd>{formatFixed(passageLoss(result, step))} nats</dd>
        <dt>Confidence distance</dt>
        <dd>{formatFixed(step.protected.confidence_distance, 3)}</dd>
        <dt>Loss increase on the retain set</dt>
        <dd>{formatSigned(step.loss_increase, 3)} nats</dd>
      </dl>
    </>
  );
}

export function TradeOffChart({ result }: { readonly result: PrivacyResult }) {
  const tips = useTips();
  const at = scales(result);
  const points = result.eval_points.map((step) => ({
    step,
    x: at.x(step.loss_increase),
    y: at.y(passageLoss(result, step)),
  }));
  const bound = at.y(result.bound.bound);
  return (
    <svg className="privacy-path" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label="Trade-off by step">
      <Axes axes={at} />
      <path className="bound" d={`M${LEFT} ${bound}H${RIGHT}`} />
      <text x={RIGHT} y={bound - 5} textAnchor="end">
        bound
      </text>
      <path className="way" d={`M${points.map(({ x, y }) => `${x} ${y}`).join("L")}`} />
      {points.map(({ step, x, y }) => (
        <circle
          key={step.step}
          className={step.step === result.best_step ? "kept" : ""}
          // The circles are read out individually.
          role="img"
          aria-label={`Step ${step.step}: ${formatFixed(passageLoss(result, step))} nats from uniform, ${formatSigned(step.loss_increase, 3)} nats on the retain set`}
          cx={x}
          cy={y}
          r={step.step === result.best_step ? 5 : 3.2}
          onPointerEnter={(event) => tips.show(event.currentTarget, <StepTip step={step} result={result} />)}
          onPointerLeave={tips.hide}
        />
      ))}
    </svg>
  );
}
