/** Each expert of a run with its nearest neighbour in another run, and the settings in which the runs differ. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "react-router";

import { comparisonQuery, runQuery } from "@/api/queries";
import type { ComparedExpert, MatchedPair, RunComparison, RunSummary } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { othersOf } from "@/components/runs/run-labels";
import { RunPicker } from "@/components/runs/run-picker";
import { SortHeader } from "@/components/table/sort-header";
import { Term } from "@/components/terms/term";
import { Command } from "@/components/ui/copy-button";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { choiceParam, flagParam, textParam, type UrlState, useUrlState } from "@/hooks/use-url-state";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";
import { type FoundColumn, FoundTable, useParts } from "@/pages/explore/search/found-table";

const SORTS = ["cosine", "density", "other_density"] as const;
type Sort = (typeof SORTS)[number];

const PARAMS = {
  run: textParam(null),
  /** The other run. */
  with: textParam(null),
  sort: choiceParam(SORTS, "cosine"),
  order: choiceParam(["asc", "desc"], "desc"),
  /** One-way matches too. */
  all: flagParam,
};

const VALUES: Readonly<Record<Sort, (pair: MatchedPair) => number>> = {
  cosine: ({ cosine }) => cosine,
  density: ({ one }) => one.density,
  other_density: ({ other }) => other.density,
};

interface TableProps extends UrlState<typeof PARAMS> {
  readonly comparison: RunComparison;
}

/** An expert, linked to its page. */
function Matched({ run, expert }: { readonly run: string; readonly expert: ComparedExpert }) {
  return (
    <Link to={pageLinks(run).expert(expert.expert)}>
      <span className="mono found-id">{expert.expert} </span>
      <ExpertLabel label={expert.label} automatic={expert.automatic} topTokens={expert.top_tokens} />
      <span className="sr"> of {run}</span>
    </Link>
  );
}

function MatchesTable({ comparison, params: { sort, order, all }, setParams }: TableProps) {
  const pairs = useMemo(() => {
    const sign = order === "desc" ? -1 : 1;
    return comparison.pairs
      .filter((pair) => pair.mutual || all)
      .sort((a, b) => sign * (VALUES[sort](a) - VALUES[sort](b)));
  }, [comparison.pairs, sort, order, all]);
  const [shown, more] = useParts(pairs);
  if (pairs.length === 0) return <EmptyState title="No mutual matches">Show all matches above.</EmptyState>;
  const { run, other: otherRun } = comparison;
  const number = (column: Sort, name: string, group?: string): FoundColumn<MatchedPair> => ({
    ...{ key: column, name, group, isNumber: true, from: group === undefined ? "phone" : "tablet" },
    head: (
      <SortHeader<Sort>
        column={column}
        className={`num c-${column}`}
        sorting={{ sort, order }}
        onSort={(change) => setParams(change, "push")}
      >
        {name}
      </SortHeader>
    ),
    cell: (pair) => (column === "cosine" ? formatFixed : formatPercent)(VALUES[column](pair)),
  });
  return (
    <>
      <FoundTable
        label="Matched experts"
        rows={shown}
        group={run}
        found={({ one }) => ({ ...one, run, topTokens: one.top_tokens.map((text) => ({ text })) })}
        withTokens={false}
        labelled={({ one }) => <Matched run={run} expert={one} />}
        columns={[
          number("density", "Density %", run),
          number("cosine", "Cosine"),
          ...(all
            ? [
                {
                  ...{ key: "mutual", name: "Mutual", from: "tablet" as const },
                  cell: ({ mutual }: MatchedPair) => (mutual ? "mutual" : <span className="dim">one-way</span>),
                },
              ]
            : []),
          {
            ...{ key: "id other", name: "Id", group: otherRun, isNumber: true, from: "tablet" },
            cell: ({ other }) => other.expert,
          },
          {
            ...{ key: "match", name: "Label", group: otherRun },
            cell: ({ other }) => <Matched run={otherRun} expert={other} />,
          },
          number("other_density", "Density %", otherRun),
        ]}
      />
      {more}
    </>
  );
}

function Statistics({ comparison }: Pick<TableProps, "comparison">) {
  const { pairs, active, other_active: others, run, other } = comparison;
  const numSame = pairs.filter((pair) => pair.one.expert === pair.other.expert).length;
  const facts: readonly (readonly [string, string])[] = [
    [`${formatPercent(comparison.mutual_share, 1)} %`, "mutual nearest neighbours"],
    [formatFixed(comparison.median_cosine), "median cosine to the nearest neighbour"],
    [formatFixed(comparison.chance_cosine), `chance level, with ${other} shuffled`],
    [formatCount(numSame), `pairs with the same id; ${formatFixed(pairs.length / others, 1)} expected by chance`],
  ];
  return (
    <>
      <ul className="wrap compare-figures big-figures" aria-label="Similarity of the two runs">
        {facts.map(([value, meaning]) => (
          <li key={meaning}>
            <b>{value}</b> <span>{meaning}</span>
          </li>
        ))}
      </ul>
      <p className="note">
        The {formatCount(pairs.length)} most used of {formatCount(active)} active experts of {run}, each matched among{" "}
        {formatCount(others)} of {other}. The cosine compares their{" "}
        {comparison.by === "gate"
          ? "gate vectors"
          : "top tokens, because their gates read different layers: it is about 1 for any two experts that fire mostly on the same token"}
        . Runs of one seed start experts of one id from the same weights or example tokens. Only runs with other seeds
        show that experts are <Term id="recurrence">found again</Term>.
      </p>
    </>
  );
}

/** Settings of both runs, as recorded, in which they differ. */
function Differences({ one, other }: { readonly one: string; readonly other: string }) {
  const [a, b] = [useQuery(runQuery(one)).data?.config, useQuery(runQuery(other)).data?.config];
  if (a === undefined || b === undefined) return <LoadingState label="Loading settings" rows={4} />;
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])].sort().filter((name) => a[name] !== b[name]);
  return (
    <details className="more-metrics">
      <summary>{names.length} settings differ</summary>
      <table className="grid plain" aria-label="Settings that differ">
        <tbody>
          {names.map((name) => (
            <tr key={name}>
              <th scope="row">{name.replaceAll("_", " ")}</th>
              <td className="mono">{String(a[name] ?? "none")}</td>
              <td className="mono">{String(b[name] ?? "none")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}

function MatchedExperts({ one, other }: { readonly one: RunSummary; readonly other: RunSummary }) {
  const [params, setParams] = useUrlState(PARAMS);
  const missing = [one, other].filter((run) => run.indexed_tokens === null);
  const { data, error, refetch } = useQuery({
    ...comparisonQuery(one.name, other.name),
    enabled: missing.length === 0,
  });
  if (missing.length > 0)
    return (
      <EmptyState title="Experts are only matched between indexed runs">
        {missing.map(({ name, index_command: command }) => (
          <Command key={name} text={command} />
        ))}
      </EmptyState>
    );
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Matching experts" rows={12} />;
  return (
    <>
      <Statistics comparison={data} />
      <SegmentedControl
        label="Matches"
        value={params.all ? "all" : "mutual"}
        onChange={(value) => setParams({ all: value === "all" }, "push")}
        segments={segmentsOf({ mutual: "Mutual matches", all: "All matches" })}
      />
      <MatchesTable comparison={data} params={params} setParams={setParams} />
    </>
  );
}

export function Matches({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(PARAMS);
  const others = othersOf(run, useCurrentRun().runs);
  const other = others.find(({ name }) => name === params.with) ?? others[0];
  if (other === undefined)
    return (
      <EmptyState title="Only one run">
        Train a second run with another seed, K or method, and compare what changes.
        {run.train_again_command !== null && <Command text={run.train_again_command} />}
      </EmptyState>
    );
  return (
    <section className="pane settings stack report-section" aria-label="Comparison of runs">
      <div className="row wrap matches-head">
        <span className="mono">{run.name}</span> with
        <RunPicker
          label="Compare with"
          runs={others}
          value={other.name}
          onChange={(name) => setParams({ with: name }, "push")}
        />
        <Link className="link" to={`${pageLinks(null).run(run.name)}?compare=${encodeURIComponent(other.name)}`}>
          Training curves of both
        </Link>
      </div>
      <Differences one={run.name} other={other.name} />
      <MatchedExperts one={run} other={other} />
    </section>
  );
}
