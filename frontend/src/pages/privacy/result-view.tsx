/** What came of one protection: tokens, figures, the way there, and where to go with the new runs. */

import { bundleAddress } from "@/api/privacy";
import type { PrivacyResult, ProtectedRuns } from "@/api/types";
import { LinkButton } from "@/components/button";
import { Icon } from "@/components/icon";
import { pageLinks } from "@/components/links";
import { Segmented } from "@/components/segmented";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { formatFixed, formatPercent, formatSigned } from "@/lib/format";

import { BeforeAfter, type By } from "./before-after";
import { Measures } from "./measures";
import { PathChart } from "./path-chart";

/** Texts that are read with both sets of runs at a time. */
const MOST_READ = 6;

function Summary({ result }: { readonly result: PrivacyResult }) {
  const { before, after } = result.protected;
  const { added } = result.retained;
  const interval =
    added.low === null || added.high === null
      ? ""
      : ` (${formatSigned(added.low, 4)} to ${formatSigned(added.high, 4)})`;
  const figures: readonly (readonly [string, string])[] = [
    [
      `${formatFixed(before.confidence_distance, 3)} → ${formatFixed(after.confidence_distance, 3)}`,
      "confidence distance on the passages",
    ],
    [
      `${formatPercent(before.entropy, 0)} → ${formatPercent(after.entropy, 0)} %`,
      "entropy there, of uniform predictions",
    ],
    [
      `${formatPercent(before.true_token, 1)} → ${formatPercent(after.true_token, 1)} %`,
      "probability of the true token",
    ],
    [`${formatSigned(added.value, 4)} nats`, `loss added to other text${interval}`],
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

function Promises({ result }: { readonly result: PrivacyResult }) {
  const { bound, certificate } = result;
  return (
    <div className="privacy-notes ink2">
      <p>
        On the passages the divergence from uniform is {formatFixed(bound.measured)} nats. A minimum among weights that
        can predict uniformly would have at most {formatFixed(bound.bound)} at θ {bound.theta}; C and the gate of{" "}
        {result.runs.length === 1 ? "one layer" : `${result.runs.length} layers`} need not be such weights, so this is
        to compare with, no promise.
      </p>
      <p>
        {certificate === null
          ? "Nothing is certified: descent stops where it is told to, and no noise was added."
          : `Certificate: ${certificate.status}. ${certificate.reason}`}
      </p>
      <p>The language model without these runs knows what it knew; so does anybody who has the runs as they were.</p>
    </div>
  );
}

function Ways({ result }: { readonly result: PrivacyResult }) {
  return (
    <ul className="privacy-ways">
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
            <a className="btn sm" href={bundleAddress(run)} download={`${run}.mxd`}>
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
  readonly shown: ProtectedRuns;
  readonly passages: readonly string[];
  readonly by: By;
  readonly onBy: (by: By) => void;
}

/** Each passage token by token, before and after. */
function Tokens({ shown: { result }, passages, by, onBy }: ResultViewProps) {
  return (
    <section aria-label="Passages before and after">
      <div className="pane-h">
        <h2>Token by token</h2>
        <Segmented
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
        <p className="dim">Passages are not stored. Type these, others or paraphrases above to read them with both.</p>
      ) : (
        passages.slice(0, MOST_READ).map((text) => <BeforeAfter key={text} result={result} text={text} by={by} />)
      )}
      {passages.length > MOST_READ && (
        <p className="dim">
          The first {MOST_READ} of {passages.length} passages.
        </p>
      )}
    </section>
  );
}

export function ResultView({ shown, passages, by, onBy }: ResultViewProps) {
  const { result } = shown;
  return (
    <>
      <section aria-label="What came of it">
        <Summary result={result} />
        <Ways result={result} />
      </section>
      <Tokens shown={shown} passages={passages} by={by} onBy={onBy} />
      <section aria-label="Measures">
        <div className="pane-h">
          <h2>How sure</h2>
          <span className="note">
            {result.runs.join(" + ")}, θ {result.theta}, step {result.kept_step} of {result.steps}, other text:{" "}
            {shown.text.split("/").at(-1)}
          </span>
        </div>
        <div className="privacy-columns">
          <Measures result={result} />
          <div>
            {result.path.length > 1 && (
              <>
                <h3>Unsure on the passages, nats from uniform</h3>
                <PathChart result={result} />
              </>
            )}
            <Promises result={result} />
          </div>
        </div>
      </section>
    </>
  );
}
