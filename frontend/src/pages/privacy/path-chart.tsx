/** The way that descent took: how unsure the passages are against what other text lost, with the bound. */

import type { CheckedStep, PrivacyResult } from "@/api/types";
import { useTips } from "@/components/tokens/tip-layer";
import { formatFixed, formatSigned } from "@/lib/format";
import { niceEnd } from "@/lib/nice-end";

const WIDTH = 420;
const HEIGHT = 220;
const LEFT = 44;
const RIGHT = 404;
const TOP = 14;
const BOTTOM = 180;

const lossOf = (result: PrivacyResult, { protected: found }: CheckedStep) =>
  result.loss === "kl-from-uniform" ? found.divergence : found.missing_entropy;

function scales(result: PrivacyResult) {
  const added = result.path.map((step) => step.added);
  const [low, high] = [Math.min(0, ...added), niceEnd(Math.max(0.01, ...added))];
  const most = niceEnd(Math.max(result.bound.bound, ...result.path.map((step) => lossOf(result, step))));
  return {
    high,
    most,
    x: (value: number) => LEFT + ((RIGHT - LEFT) * (value - low)) / (high - low),
    y: (value: number) => BOTTOM - ((BOTTOM - TOP) * Math.max(0, value)) / most,
  };
}

type Scales = ReturnType<typeof scales>;

function Axes({ at }: { readonly at: Scales }) {
  return (
    <>
      {[0, 0.5, 1].map((share) => (
        <g key={share}>
          <path className="ax" d={`M${LEFT} ${at.y(share * at.most)}H${RIGHT}`} />
          <text x={LEFT - 8} y={at.y(share * at.most) + 4} textAnchor="end">
            {Number((share * at.most).toPrecision(3))}
          </text>
          <text x={at.x(share * at.high)} y={BOTTOM + 17} textAnchor="middle">
            {Number((share * at.high).toPrecision(3))}
          </text>
        </g>
      ))}
      <text x={(LEFT + RIGHT) / 2} y={HEIGHT - 6} textAnchor="middle">
        Loss added elsewhere, nats a token
      </text>
    </>
  );
}

function StepTip({ step, result }: { readonly step: CheckedStep; readonly result: PrivacyResult }) {
  return (
    <>
      <div className="hd">
        <b>Step {step.step}</b>
        {step.step === result.kept_step && <span className="dim">kept</span>}
      </div>
      <dl>
        <dt>Divergence from uniform</dt>
        <dd>{formatFixed(lossOf(result, step))} nats</dd>
        <dt>Confidence distance</dt>
        <dd>{formatFixed(step.protected.confidence_distance, 3)}</dd>
        <dt>Added elsewhere</dt>
        <dd>{formatSigned(step.added, 3)} nats</dd>
      </dl>
    </>
  );
}

export function PathChart({ result }: { readonly result: PrivacyResult }) {
  const tips = useTips();
  const at = scales(result);
  const points = result.path.map((step) => ({ step, x: at.x(step.added), y: at.y(lossOf(result, step)) }));
  const bound = at.y(result.bound.bound);
  return (
    <svg className="privacy-path" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label="Trade-off by step">
      <Axes at={at} />
      <path className="bound" d={`M${LEFT} ${bound}H${RIGHT}`} />
      <text x={RIGHT} y={bound - 5} textAnchor="end">
        bound
      </text>
      <path className="way" d={`M${points.map(({ x, y }) => `${x} ${y}`).join("L")}`} />
      {points.map(({ step, x, y }) => (
        <circle
          key={step.step}
          className={step.step === result.kept_step ? "kept" : ""}
          // A group of points that are read one by one.
          role="img"
          aria-label={`Step ${step.step}: ${formatFixed(lossOf(result, step))} nats from uniform, ${formatSigned(step.added, 3)} nats elsewhere`}
          cx={x}
          cy={y}
          r={step.step === result.kept_step ? 5 : 3.2}
          onPointerEnter={(event) => tips.show(event.currentTarget, <StepTip step={step} result={result} />)}
          onPointerLeave={tips.hide}
        />
      ))}
    </svg>
  );
}
