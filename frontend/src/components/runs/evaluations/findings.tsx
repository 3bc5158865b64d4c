/** The main results of an evaluation as cards, with a chart of the continuations that stay equal. */

import "./findings.css";

import type { Fact } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { formatFact } from "@/components/runs/facts";
import { Term } from "@/components/terms/term";

import { continuations, type EqualFor, faithfulnessVerdict, findings } from "./faithfulness-verdict";

const percent = (share: number | null | undefined) => `${100 * (share ?? 0)}%`;

/** A bar per length, with the interval as a line. */
function EqualBars({ lengths }: { readonly lengths: readonly EqualFor[] }) {
  return (
    <ol className="equal-bars" aria-label="Equal continuations by number of tokens">
      {lengths.map(({ tokens, value, low, high, unit }) => (
        <li key={tokens}>
          <span className="num">
            {tokens}
            <span className="sr"> {tokens === 1 ? "token" : "tokens"}</span>
          </span>
          <span className="track" aria-hidden="true">
            <i className="filled" style={{ width: percent(value) }} />
            {low != null && (
              <i className="whisker" style={{ left: percent(low), width: percent((high ?? low) - low) }} />
            )}
          </span>
          <span className="num">{formatFact(value, unit)}</span>
        </li>
      ))}
    </ol>
  );
}

interface FindingsProps {
  readonly run: string;
  readonly facts: readonly Fact[];
}

export function Findings({ run, facts }: FindingsProps) {
  const hasSkip = useCurrentRun().runs.some(({ name, method }) => name === run && method.includes("skip"));
  return (
    <>
      <p className="verdict">{faithfulnessVerdict(run, facts)}</p>
      <dl className="main-results">
        {findings(facts, hasSkip).map(({ name, term, value, interval, meaning }) => (
          <div key={name}>
            <dt>
              <Term id={term}>{name}</Term>
            </dt>
            <dd className="value">{value}</dd>
            {interval !== "" && <dd className="dim">95 % interval {interval}</dd>}
            <dd className="ink2">
              {meaning}
              {term === "continuations" && <EqualBars lengths={continuations(facts)} />}
            </dd>
          </div>
        ))}
      </dl>
    </>
  );
}
