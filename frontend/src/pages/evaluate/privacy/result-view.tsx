/** Result of one privacy fine-tune: tokens, metrics, trade-off, and links to the new runs. */

import { bundleUrl } from "@/api/privacy";
import type { PrivacyResult, PrivacyFineTune } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { Button, LinkButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { formatFixed } from "@/lib/text/format";

import { BeforeAfter, MeasuredPassage, type ShadeBy } from "./before-after";
import { MetricsTable } from "./metrics-table";
import { passageText } from "./passage-summary";
import { privacyVerdict } from "./privacy-verdict";
import { TradeOffChart } from "./trade-off-chart";

/** Number of passages shown token by token. */
const MAX_SHOWN_PASSAGES = 6;

function Verdict({ shown }: { readonly shown: PrivacyFineTune }) {
  const { effect, cost, limits } = privacyVerdict(shown);
  return (
    <div className="privacy-verdict">
      <p className="verdict">
        <b>{effect}</b> {cost}
      </p>
      {limits.length > 0 && (
        <ul aria-label="Limits">
          {limits.map((limit) => (
            <li key={limit}>{limit}</li>
          ))}
        </ul>
      )}
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

interface ResultViewProps {
  readonly shown: PrivacyFineTune;
  readonly passages: readonly string[];
  readonly by: ShadeBy;
  readonly onBy: (by: ShadeBy) => void;
  readonly onPassages: (text: string) => void;
}

/** Links to the new runs, or how to make them if they are not here. */
function RunLinks({ shown, onPassages }: Pick<ResultViewProps, "shown" | "onPassages">) {
  const { runs, passage_tokens: stored } = shown.result;
  if (!shown.has_runs) {
    return (
      <p className="privacy-absent ink2">
        The fine-tuned run is not included here, only its result.
        {stored.length > 0 && (
          <Button size="small" onClick={() => onPassages(stored.map(passageText).join("\n\n"))}>
            Use these passages
          </Button>
        )}
      </p>
    );
  }
  return (
    <ul className="privacy-run-links">
      {runs.map((run) => {
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

/** Typed passages if the runs are here to evaluate them, otherwise the stored ones. */
function Passages({ shown, passages, by }: Pick<ResultViewProps, "shown" | "passages" | "by">) {
  const stored = shown.result.passage_tokens;
  const isTyped = passages.length > 0 && shown.has_runs;
  const count = isTyped ? passages.length : stored.length;
  if (count === 0) {
    return (
      <p className="dim">
        The passages are not stored with this result.
        {shown.has_runs && " Type these or other passages above to compare before and after."}
      </p>
    );
  }
  return (
    <>
      {isTyped
        ? passages
            .slice(0, MAX_SHOWN_PASSAGES)
            .map((text) => <MeasuredPassage key={text} shown={shown} text={text} by={by} />)
        : stored
            .slice(0, MAX_SHOWN_PASSAGES)
            .map((tokens) => <BeforeAfter key={passageText(tokens)} shown={shown} tokens={tokens} by={by} />)}
      {count > MAX_SHOWN_PASSAGES && (
        <p className="dim">
          First {MAX_SHOWN_PASSAGES} of {count} passages shown.
        </p>
      )}
    </>
  );
}

/** Each passage, token by token, before and after. */
function Tokens({ shown, passages, by, onBy }: Omit<ResultViewProps, "onPassages">) {
  return (
    <section aria-label="Passages before and after">
      <div className="pane-h">
        <h2>Passages</h2>
        <SegmentedControl
          label="Shade by"
          value={by}
          onChange={onBy}
          segments={[
            { value: "true-token", label: "True token" },
            { value: "entropy", label: "Entropy" },
          ]}
        />
        <span className="note">
          the first {shown.skip_tokens} tokens are shown, but neither protected nor counted in the means
        </span>
        <span className="grow" />
        <RampLegend
          kind="sequential"
          low={by === "entropy" ? "sure" : "0"}
          high={by === "entropy" ? "uniform" : "100 %"}
        />
      </div>
      <Passages shown={shown} passages={passages} by={by} />
    </section>
  );
}

export function ResultView({ shown, passages, by, onBy, onPassages }: ResultViewProps) {
  const { result } = shown;
  return (
    <>
      <section aria-label="Result">
        <Verdict shown={shown} />
        <RunLinks shown={shown} onPassages={onPassages} />
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
