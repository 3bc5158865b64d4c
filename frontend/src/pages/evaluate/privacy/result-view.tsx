/** Result of one privacy fine-tune: tokens, metrics, trade-off, and links to the new runs. */

import { bundleUrl } from "@/api/privacy";
import type { PrivacyFineTune } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { Button, LinkButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { nonBreaking } from "@/lib/text/non-breaking";

import { BeforeAfter, MeasuredPassage } from "./before-after";
import { MetricsTable } from "./metrics-table";
import { passageText, type ShadeBy } from "./passage-summary";
import { privacyVerdict } from "./privacy-verdict";
import { StepCharts } from "./step-charts";
import { NOT_PROTECTED, THREAT_MODEL } from "./threat-model";

/** Number of passages shown token by token. */
const MAX_SHOWN_PASSAGES = 6;

function Verdict({ shown }: { readonly shown: PrivacyFineTune }) {
  const { effect, cost, limits } = privacyVerdict(shown);
  return (
    <div className="privacy-verdict">
      <p>{nonBreaking(`${effect} ${cost}`)}</p>
      {limits.length > 0 && (
        <>
          <p>Limits, as the mean probability of the true next token before and after:</p>
          <ul aria-label="Limits">
            {limits.map((limit) => (
              <li key={limit}>{nonBreaking(limit)}</li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}

function Guarantees() {
  return (
    <>
      <div className="pane-h">
        <h2>Threat model and limits</h2>
      </div>
      <ul className="privacy-notes ink2" aria-label="What is not guaranteed">
        <li>{THREAT_MODEL}</li>
        <li>{NOT_PROTECTED}</li>
        <li>
          There is no formal guarantee, as no noise was added to the weights. A measured attack only shows what that
          attack finds.
        </li>
        <li>
          Intervals over predictions treat these as independent and are about these passages only: passages are chosen,
          not a random sample.
        </li>
      </ul>
    </>
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
          the first {shown.skip_tokens} tokens are shown, but neither fine-tuned nor counted in the means
        </span>
        <span className="grow" />
        <RampLegend
          kind="sequential"
          low={by === "entropy" ? "certain" : "0"}
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
        <div className="pane-h wrap">
          <h2>{nonBreaking(privacyVerdict(shown).title)}</h2>
          <span className="note">
            {result.runs.join(" + ")}, {shown.created_at.slice(0, 10)}, weight {result.theta}, step {result.best_step}{" "}
            of {result.steps}, retain set: {shown.text.split("/").at(-1)}
          </span>
        </div>
        <Verdict shown={shown} />
        <RunLinks shown={shown} onPassages={onPassages} />
      </section>
      <Tokens shown={shown} passages={passages} by={by} onBy={onBy} />
      <section aria-label="Metrics">
        <div className="pane-h">
          <h2>Confidence and cost</h2>
          <span className="note">
            original run → new run, means over n predictions. Intended on the chosen passages: lower true token,
            distance and sum of top 5, higher entropy.
          </span>
        </div>
        <MetricsTable result={result} />
        {result.eval_points.length > 1 && <StepCharts shown={shown} />}
        <Guarantees />
      </section>
    </>
  );
}
