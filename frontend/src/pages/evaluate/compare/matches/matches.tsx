/** Each expert of a run with its nearest neighbour in the other run, with summary statistics. */

import { useQuery } from "@tanstack/react-query";

import { comparisonQuery } from "@/api/comparison";
import type { RunComparison, RunSummary } from "@/api/types";
import { Term } from "@/components/terms/term";
import { Command } from "@/components/ui/copyable-command";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";
import type { CompareParams, SetCompareParams } from "@/pages/evaluate/compare/compare-params";
import { isSameMlp } from "@/pages/evaluate/compare/other-run";

import { MatchesTable } from "./matches-table";
import { median, sameStart } from "./same-start";

interface MatchesProps {
  readonly one: RunSummary;
  readonly other: RunSummary;
  readonly params: CompareParams;
  readonly setParams: SetCompareParams;
}

const MATCHED_BY: Readonly<Record<RunComparison["by"], string>> = {
  gate: "by cosine similarity of their gate vectors (same layer)",
  tokens: "by cosine similarity of their top activating tokens (different gate inputs)",
};

function MatchStatistics({ comparison }: { readonly comparison: RunComparison }) {
  const facts: readonly (readonly [string, string])[] = [
    [`${formatPercent(comparison.mutual_share, 1)} %`, "mutual nearest neighbours"],
    [formatFixed(comparison.median_cosine), "median cosine to the nearest neighbour"],
    [formatFixed(comparison.chance_cosine), `chance level, with ${comparison.other} shuffled`],
  ];
  return (
    <ul className="compare-figures big-figures" aria-label="Similarity of the two runs">
      {facts.map(([value, meaning]) => (
        <li key={meaning}>
          <b>{value}</b> <span>{meaning}</span>
        </li>
      ))}
    </ul>
  );
}

/** The matched experts of both runs. */
function sample({ pairs, active, other_active: others, run, other }: RunComparison): string {
  const isPart = pairs.length < active;
  const ones = isPart
    ? `The ${formatCount(pairs.length)} most used of ${formatCount(active)}`
    : `All ${formatCount(active)}`;
  return `${ones} active experts of ${run}, each matched among ${formatCount(others)} active experts of ${other}.`;
}

interface MatchedExpertsProps extends MatchesProps {
  readonly comparison: RunComparison;
}

function SameStart({ comparison, one, other }: Pick<MatchedExpertsProps, "comparison" | "one" | "other">) {
  const start = isSameMlp(one, other) && one.seed === other.seed ? sameStart(comparison) : null;
  if (start === null) return null;
  const { numSame, byChance, rest } = start;
  const mutual = rest.filter((pair) => pair.mutual).length;
  return (
    <p>
      {formatCount(numSame)} of {formatCount(comparison.pairs.length)} pairs have the same id, against{" "}
      {formatFixed(byChance, 1)} expected by chance. Both runs have seed {one.seed}, so experts of one id start from the
      same weights or example token.
      {rest.length > 0 &&
        ` Of the other ${formatCount(rest.length)} pairs, ${formatPercent(mutual / rest.length, 1)} % are mutual, with a median cosine of ${formatFixed(median(rest.map(({ cosine }) => cosine)))}.`}{" "}
      Only runs with other seeds show that experts are <Term id="recurrence">found again</Term>.
    </p>
  );
}

function MatchedExperts({ one, other, comparison, params, setParams }: MatchedExpertsProps) {
  return (
    <>
      <div className="compare-pane">
        <div className="pane-h">
          <h2>Matched experts</h2>
          <span className="note">{MATCHED_BY[comparison.by]}</span>
          <span className="grow" />
          <SegmentedControl
            label="Matches"
            value={params.mutual ? "mutual" : "all"}
            onChange={(value) => setParams({ mutual: value === "mutual" }, "push")}
            segments={[
              { value: "all", label: "All" },
              { value: "mutual", label: "Mutual only" },
            ]}
          />
        </div>
        <MatchStatistics comparison={comparison} />
        <p>{sample(comparison)}</p>
        <SameStart comparison={comparison} one={one} other={other} />
      </div>
      <MatchesTable comparison={comparison} params={params} setParams={setParams} />
    </>
  );
}

function UnindexedRuns({ runs }: { readonly runs: readonly RunSummary[] }) {
  return (
    <div className="compare-pane compare-missing">
      <div className="pane-h">
        <h2>Matched experts</h2>
      </div>
      <p className="ink2">Experts are only matched between indexed runs. Run:</p>
      {runs.map(({ name, text }) => (
        <Command key={name} text={`mxd index ${name} --dataset ${text} --tokens 1M`} />
      ))}
    </div>
  );
}

export function Matches({ one, other, params, setParams }: MatchesProps) {
  const missing = [one, other].filter((run) => run.indexed_tokens === null);
  const { data, error, refetch } = useQuery({
    ...comparisonQuery(one.name, other.name),
    enabled: missing.length === 0,
  });
  return (
    <section className="pane compare-matches" aria-label="Matched experts">
      {missing.length > 0 && <UnindexedRuns runs={missing} />}
      {missing.length === 0 && error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {missing.length === 0 && error === null && data === undefined && (
        <LoadingState label="Matching experts" rows={12} rowHeight={31} />
      )}
      {data !== undefined && missing.length === 0 && error === null && (
        <MatchedExperts one={one} other={other} comparison={data} params={params} setParams={setParams} />
      )}
    </section>
  );
}
