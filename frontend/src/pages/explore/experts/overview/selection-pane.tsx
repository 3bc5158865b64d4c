/** Next to the overview: the lasso selection, or the density histogram if nothing is selected. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { expertsQuery, figureQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { ExpertLink } from "@/components/experts/expert-link";
import { AddToList } from "@/components/lists/add-to-list";
import { withSparseDensityAxis } from "@/components/plots/axes/axes";
import { Plot } from "@/components/plots/plot";
import { Button } from "@/components/ui/button";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";

import { type OverviewPoint, type DensityRange, densityRange } from "./overview-figure";

const MAX_LISTED = 5;

interface SelectionPaneProps {
  readonly run: RunSummary;
  readonly chosen: readonly OverviewPoint[];
  readonly onClear: () => void;
  readonly onFilter: (experts: readonly number[]) => void;
}

function DensityHistogram({ run }: { readonly run: RunSummary }) {
  const { data } = useQuery(figureQuery("density-histogram", { run: run.name }));
  const figure = useMemo(() => data && withSparseDensityAxis(data, null), [data]);
  return (
    <div className="pane selection">
      <div className="pane-h">
        <h2>Density</h2>
        <span className="note">number of experts by activation density</span>
      </div>
      {figure !== undefined && <Plot figure={figure} height={190} label={figure.title} />}
      <p className="dim hint">Lasso experts in the figure to select them.</p>
    </div>
  );
}

function span(values: readonly number[], format: (value: number) => string): string {
  return `${format(Math.min(...values))} to ${format(Math.max(...values))}`;
}

/** Number of experts of the whole run in the range, including those that are not drawn. */
function useMatching(run: string, range: DensityRange | null): number | undefined {
  const filters = { sort: "max_activation", order: "desc", ...range } as const;
  const { data } = useInfiniteQuery({ ...expertsQuery(run, filters, 1), enabled: range !== null });
  return data?.pages[0]?.matching;
}

/** Automatic labels of the listed experts. */
function useAutomaticLabels(run: string, experts: readonly number[]) {
  const filters = { sort: "expert", order: "asc", among: experts.join(",") } as const;
  const { data } = useInfiniteQuery({ ...expertsQuery(run, filters, MAX_LISTED), enabled: experts.length > 0 });
  return new Map(data?.pages[0]?.experts.map((row) => [row.expert, row.automatic]));
}

export function SelectionPane({ run, chosen, onClear, onFilter }: SelectionPaneProps) {
  const range = useMemo(() => densityRange(chosen), [chosen]);
  const matching = useMatching(run.name, range);
  const labelled = chosen.filter((point) => point.label !== null);
  const listed = [...labelled, ...chosen.filter((point) => point.label === null)].slice(0, MAX_LISTED);
  const automatic = useAutomaticLabels(
    run.name,
    listed.map((point) => point.expert),
  );
  if (range === null) return <DensityHistogram run={run} />;
  const experts = chosen.map((point) => point.expert);
  return (
    <div className="pane selection">
      <div className="pane-h">
        <h2>Selection</h2>
        <span className="chip sel">
          {formatCount(chosen.length)} experts
          <button type="button" className="x" aria-label="Clear selection" onClick={onClear}>
            ×
          </button>
        </span>
        <span className="grow" />
        <AddToList run={run.name} experts={experts} className="btn sm" />
        <Button size="small" onClick={() => onFilter(experts)}>
          Show in table
        </Button>
      </div>
      <dl className="kv">
        <dt>Density</dt>
        <dd>
          {span(
            chosen.map((point) => point.density),
            formatPercent,
          )}{" "}
          <span>%</span>
        </dd>
        <dt>Mean activation</dt>
        <dd>
          {span(
            chosen.map((point) => point.mean),
            formatFixed,
          )}
        </dd>
        <dt>Human-labelled</dt>
        <dd>
          {formatCount(labelled.length)} <span>of {formatCount(chosen.length)}</span>
        </dd>
        <dt>Experts in this density range</dt>
        <dd>{matching === undefined ? "…" : formatCount(matching)}</dd>
      </dl>
      <ul className="selected">
        {listed.map((point) => (
          <li key={point.expert}>
            <ExpertLink expert={point.expert} label={point.label} automatic={automatic.get(point.expert)} />
          </li>
        ))}
      </ul>
    </div>
  );
}
