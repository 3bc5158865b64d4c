/** Experts of one run with their nearest in the other: how many find each other, and which. */

import { useQuery } from "@tanstack/react-query";

import { comparisonQuery } from "@/api/queries";
import type { RunComparison, RunSummary } from "@/api/types";
import { Command } from "@/components/command";
import { Segmented } from "@/components/segmented";
import { ErrorState, LoadingState } from "@/components/states";
import { formatCount, formatFixed, formatPercent } from "@/lib/format";

import type { CompareParams, SetCompareParams } from "./compare-params";
import { MatchesTable } from "./matches-table";

interface MatchesProps {
  readonly one: RunSummary;
  readonly other: RunSummary;
  readonly params: CompareParams;
  readonly setParams: SetCompareParams;
}

const WAYS: Readonly<Record<RunComparison["by"], string>> = {
  gate: "by cosine of their gates: both read the same layer",
  tokens: "by cosine of the tokens they fire on most: their gates read different things",
};

function Figures({ comparison }: { readonly comparison: RunComparison }) {
  const { pairs, active, other_active, run, other } = comparison;
  const which = pairs.length < active ? `most used of ${formatCount(active)} active experts` : "active experts";
  const facts: readonly (readonly [string, string])[] = [
    [`${formatPercent(comparison.mutual_share, 1)} %`, "mutual: neither has one nearer"],
    [formatFixed(comparison.median_cosine), "median cosine with the nearest"],
    [formatFixed(comparison.chance_cosine), `the same by chance, with ${other} shuffled`],
    [formatCount(pairs.length), `${which} of ${run}, among ${formatCount(other_active)} of ${other}`],
  ];
  return (
    <ul className="compare-figures big-figures" aria-label="How alike they are">
      {facts.map(([value, meaning]) => (
        <li key={meaning}>
          <b>{value}</b> <span>{meaning}</span>
        </li>
      ))}
    </ul>
  );
}

function Matched({
  comparison,
  params,
  setParams,
}: Pick<MatchesProps, "params" | "setParams"> & { readonly comparison: RunComparison }) {
  return (
    <>
      <div className="compare-pane">
        <div className="pane-h">
          <h2>Matched experts</h2>
          <span className="note">{WAYS[comparison.by]}</span>
          <span className="grow" />
          <Segmented
            label="Matches shown"
            value={params.mutual ? "mutual" : "all"}
            onChange={(shown) => setParams({ mutual: shown === "mutual" }, "push")}
            segments={[
              { value: "all", label: "All" },
              { value: "mutual", label: "Mutual only" },
            ]}
          />
        </div>
        <Figures comparison={comparison} />
      </div>
      <MatchesTable comparison={comparison} params={params} setParams={setParams} />
    </>
  );
}

function NotIndexed({ runs }: { readonly runs: readonly RunSummary[] }) {
  return (
    <div className="compare-pane compare-missing">
      <div className="pane-h">
        <h2>Matched experts</h2>
      </div>
      <p className="ink2">Experts are matched where both runs have been indexed; one pass over some text is missing:</p>
      {runs.map(({ name, text }) => (
        <Command key={name} text={`mxd index ${name} --text ${text} --tokens 1M`} />
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
      {missing.length > 0 && <NotIndexed runs={missing} />}
      {missing.length === 0 && error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {missing.length === 0 && error === null && data === undefined && (
        <LoadingState label="Matching the experts" rows={12} rowHeight={31} />
      )}
      {data !== undefined && missing.length === 0 && error === null && (
        <Matched comparison={data} params={params} setParams={setParams} />
      )}
    </section>
  );
}
