/** Beside the overview: what the lasso holds, or how usage is spread while it holds nothing. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { expertsQuery, figureQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { Button } from "@/components/button";
import { AddToList } from "@/components/lists/add-to-list";
import { ExpertRef } from "@/components/expert-ref";
import { Plot } from "@/components/figure/plot";
import { percentUsageAxis } from "@/components/figure/axes";
import { formatCount, formatFixed, formatPercent } from "@/lib/format";

import { type OverviewPoint, type UsageRange, usageRange } from "./overview-figure";

const LISTED = 5;

interface SelectionPaneProps {
  readonly run: RunSummary;
  readonly chosen: readonly OverviewPoint[];
  readonly onClear: () => void;
  readonly onFilter: (experts: readonly number[]) => void;
}

function UsageSpread({ run }: { readonly run: RunSummary }) {
  const { data } = useQuery(figureQuery("usage-histogram", { run: run.name }));
  const figure = useMemo(() => data && percentUsageAxis(data, null), [data]);
  return (
    <div className="pane selection">
      <div className="pane-h">
        <h2>Usage</h2>
        <span className="note">experts by share of tokens</span>
      </div>
      {figure !== undefined && <Plot figure={figure} height={190} label={figure.title} />}
      <p className="dim hint">Draw a lasso around experts to see what they have in common.</p>
    </div>
  );
}

function span(values: readonly number[], write: (value: number) => string): string {
  return `${write(Math.min(...values))} to ${write(Math.max(...values))}`;
}

/** How many experts of the whole run fall into the range, drawn or not. */
function useMatching(run: string, range: UsageRange | null): number | undefined {
  const filters = { sort: "largest", order: "desc", ...range } as const;
  const { data } = useInfiniteQuery({ ...expertsQuery(run, filters, 1), enabled: range !== null });
  return data?.pages[0]?.matching;
}

/** Labels that a program gave, of the few that are listed. */
function useAutomatic(run: string, experts: readonly number[]) {
  const filters = { sort: "expert", order: "asc", among: experts.join(",") } as const;
  const { data } = useInfiniteQuery({ ...expertsQuery(run, filters, LISTED), enabled: experts.length > 0 });
  return new Map(data?.pages[0]?.experts.map((row) => [row.expert, row.automatic]));
}

export function SelectionPane({ run, chosen, onClear, onFilter }: SelectionPaneProps) {
  const range = useMemo(() => usageRange(chosen), [chosen]);
  const matching = useMatching(run.name, range);
  const labelled = chosen.filter((point) => point.label !== null);
  const shown = [...labelled, ...chosen.filter((point) => point.label === null)].slice(0, LISTED);
  const automatic = useAutomatic(
    run.name,
    shown.map((point) => point.expert),
  );
  if (range === null) return <UsageSpread run={run} />;
  const experts = chosen.map((point) => point.expert);
  return (
    <div className="pane selection">
      <div className="pane-h">
        <h2>Lasso</h2>
        <span className="chip sel">
          {formatCount(chosen.length)} experts
          <button type="button" className="x" aria-label="Let go of the lasso" onClick={onClear}>
            ×
          </button>
        </span>
        <span className="grow" />
        <AddToList run={run.name} experts={experts} className="btn sm" />
        <Button size="small" onClick={() => onFilter(experts)}>
          In the table
        </Button>
      </div>
      <dl className="kv">
        <dt>Usage</dt>
        <dd>
          {span(
            chosen.map((point) => point.usage),
            formatPercent,
          )}{" "}
          <span>%</span>
        </dd>
        <dt>Mean coefficient</dt>
        <dd>
          {span(
            chosen.map((point) => point.mean),
            formatFixed,
          )}
        </dd>
        <dt>With a label of a person</dt>
        <dd>
          {formatCount(labelled.length)} <span>of {formatCount(chosen.length)}</span>
        </dd>
        <dt>Experts with this usage</dt>
        <dd>{matching === undefined ? "…" : formatCount(matching)}</dd>
      </dl>
      <ul className="selected">
        {shown.map((point) => (
          <li key={point.expert}>
            <ExpertRef expert={point.expert} label={point.label} automatic={automatic.get(point.expert)} />
          </li>
        ))}
      </ul>
    </div>
  );
}
