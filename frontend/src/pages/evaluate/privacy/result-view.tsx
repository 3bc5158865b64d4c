/** Result of one privacy fine-tune: tokens, metrics, trade-off, and links to the new runs. */

import { bundleUrl } from "@/api/privacy";
import type { PrivacyResult, PrivacyFineTune } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { LinkButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { formatFixed, formatPercent, formatSigned } from "@/lib/text/format";

import { BeforeAfter, type ShadeBy } from "./before-after";
import { MetricsTable } from "./metrics-table";
import { TradeOffChart } from "./trade-off-chart";

/** Number of passages evaluated with both sets of runs. */
const MAX_SHOWN_PASSAGES = 6;

function Summary({ result }: { readonly result: PrivacyResult }) {
  const { before, after } = result.protected;
  const { loss_increase: added } = result.retained;
  const interval = ` (${formatSigned(added.low, 4)} to ${formatSigned(added.high, 4)})`;
  const figures: readonly (readonly [string, string])[] = [
    [
      `${formatFixed(before.confidence_distance, 3)} → ${formatFixed(after.confidence_distance, 3)}`,
      "confidence distance on the passages",
    ],
    [
      `${formatPercent(before.entropy, 0)} → ${formatPercent(after.entropy, 0)} %`,
      "entropy on the passages (% of uniform)",
    ],
    [
      `${formatPercent(before.true_token, 1)} → ${formatPercent(after.true_token, 1)} %`,
      "probability of the true token",
    ],
    [`${formatSigned(added.value, 4)} nats`, `loss increase on the retain set${interval}`],
  ];
  return (
    <div className="big-figures privacy-figures">
      {figures.map(([value, meaning]) => (
        <div key={meaning}>
          <b>{value}</b>
          <span>{meaning}</span>
        </div>
      ))}
    </div>
  );
}

function Guarantees({ result }: { readonly result: PrivacyResult }) {
  const { bound } = result;
  return (
    <div className="privacy-notes ink2">
      <p>
        The measured divergence from uniform on the passages is {formatFixed(bound.measured)} nats. A minimiser over
        weights that can predict uniformly would have at most {formatFixed(bound.bound)} nats at weight {bound.theta};
        since the output scaling and the gate of{" "}
        {result.runs.length === 1 ? "one layer" : `${result.runs.length} layers`} may not be able to, this bound is a
        reference value and not a guarantee.
      </p>
      <p>No formal guarantee: no noise was added to the weights.</p>
      <p>
        The protection only covers these runs. The original model and the runs before fine-tuning still contain the
        passages.
      </p>
    </div>
  );
}

function RunLinks({ result }: { readonly result: PrivacyResult }) {
  return (
    <ul className="privacy-run-links">
      {result.runs.map((run) => {
        const links = pageLinks(run);
        return (
          <li key={run}>
            <b>{run}</b>
            <LinkButton size="small" to={links.page("routing")}>
              Routing
            </LinkButton>
            <LinkButton size="small" to={links.page("steering")}>
              Steering
            </LinkButton>
            <a className="btn sm" href={bundleUrl(run)} download={`${run}.mxd`}>
              <Icon name="download" />
              Export
            </a>
          </li>
        );
      })}
    </ul>
  );
}

interface ResultViewProps {
  readonly shown: PrivacyFineTune;
  readonly passages: readonly string[];
  readonly by: ShadeBy;
  readonly onBy: (by: ShadeBy) => void;
}

/** Each passage, token by token, before and after. */
function Tokens({ shown: { result }, passages, by, onBy }: ResultViewProps) {
  return (
    <section aria-label="Passages before and after">
      <div className="pane-h">
        <h2>Per token</h2>
        <SegmentedControl
          label="Shade by"
          value={by}
          onChange={onBy}
          segments={[
            { value: "true-token", label: "True token" },
            { value: "entropy", label: "Entropy" },
          ]}
        />
        <span className="grow" />
        <RampLegend
          kind="sequential"
          low={by === "entropy" ? "sure" : "0"}
          high={by === "entropy" ? "uniform" : "100 %"}
        />
      </div>
      {passages.length === 0 ? (
        <p className="dim">Passages are not stored. Type these or other passages above to compare before and after.</p>
      ) : (
        passages
          .slice(0, MAX_SHOWN_PASSAGES)
          .map((text) => <BeforeAfter key={text} result={result} text={text} by={by} />)
      )}
      {passages.length > MAX_SHOWN_PASSAGES && (
        <p className="dim">
          First {MAX_SHOWN_PASSAGES} of {passages.length} passages shown.
        </p>
      )}
    </section>
  );
}

export function ResultView({ shown, passages, by, onBy }: ResultViewProps) {
  const { result } = shown;
  return (
    <>
      <section aria-label="Result">
        <Summary result={result} />
        <RunLinks result={result} />
      </section>
      <Tokens shown={shown} passages={passages} by={by} onBy={onBy} />
      <section aria-label="Metrics">
        <div className="pane-h">
          <h2>Confidence</h2>
          <span className="note">
            {result.runs.join(" + ")}, weight {result.theta}, step {result.best_step} of {result.steps}, retain set:{" "}
            {shown.text.split("/").at(-1)}
          </span>
        </div>
        <div className="privacy-columns">
          <MetricsTable result={result} />
          <div>
            {result.eval_points.length > 1 && (
              <>
                <h3>Divergence from uniform on the passages, nats</h3>
                <TradeOffChart result={result} />
              </>
            )}
            <Guarantees result={result} />
          </div>
        </div>
      </section>
    </>
  );
}
