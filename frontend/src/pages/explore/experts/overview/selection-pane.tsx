/** Next to the overview: the lasso selection; if nothing is selected, experts to begin with and the densities. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { expertsQuery, figureQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { ExpertLink } from "@/components/experts/expert-link";
import { AddToList } from "@/components/lists/add-to-list";
import { withSparseDensityAxis } from "@/components/plots/axes/axes";
import { Plot } from "@/components/plots/plot";
import { Button } from "@/components/ui/button";
import { useBestExperts } from "@/hooks/use-best-experts";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";
import { MAX_IN_URL } from "@/pages/explore/experts/experts-params";

import { type OverviewPoint, type DensityRange, densityRange } from "./overview-figure";

const MAX_LISTED = 5;
const NUM_FIRST = 3;
const HISTOGRAM_HEIGHT = 118;

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
        <span className="note">number of experts</span>
      </div>
      {figure !== undefined && <Plot figure={figure} height={HISTOGRAM_HEIGHT} label={figure.title} />}
      <FirstExperts run={run.name} />
    </div>
  );
}

/** The most interesting experts, for those who open the page for the first time. */
function FirstExperts({ run }: { readonly run: string }) {
  const { experts } = useBestExperts(run);
  return (
    <>
      <h3>Start with one of these, or lasso experts</h3>
      <ul className="selected">
        {experts.slice(0, NUM_FIRST).map(({ expert, label, automatic }) => (
          <li key={expert}>
            <ExpertLink expert={expert} label={label} automatic={automatic} />
          </li>
        ))}
      </ul>
    </>
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

const fitsLink = (chosen: readonly OverviewPoint[]) => chosen.length <= MAX_IN_URL;

/** A selection that the URL does not hold. */
function NotInLink({ run, chosen }: Pick<SelectionPaneProps, "run" | "chosen">) {
  return (
    <p className="not-in-link" role="status">
      Too many for the link (at most {MAX_IN_URL}):{" "}
      <AddToList run={run.name} experts={chosen.map((point) => point.expert)} className="btn sm" label="Save as list" />
    </p>
  );
}

function SelectionHead({ run, chosen, onClear, onFilter }: SelectionPaneProps) {
  const experts = chosen.map((point) => point.expert);
  return (
    <div className="pane-h wrap">
      <h2>Selection</h2>
      <span className="chip sel">
        {formatCount(chosen.length)} experts
        <button type="button" className="x" aria-label="Clear selection" onClick={onClear}>
          ×
        </button>
      </span>
      <span className="grow" />
      <span className="selection-acts">
        {fitsLink(chosen) && <AddToList run={run.name} experts={experts} className="btn sm" />}
        <Button size="small" onClick={() => onFilter(experts)}>
          Show in table
        </Button>
      </span>
    </div>
  );
}

export function SelectionPane(props: SelectionPaneProps) {
  const { run, chosen } = props;
  const range = useMemo(() => densityRange(chosen), [chosen]);
  const matching = useMatching(run.name, range);
  const labelled = chosen.filter((point) => point.label !== null);
  const listed = [...labelled, ...chosen.filter((point) => point.label === null)].slice(0, MAX_LISTED);
  const automatic = useAutomaticLabels(
    run.name,
    listed.map((point) => point.expert),
  );
  if (range === null) return <DensityHistogram run={run} />;
  return (
    <div className="pane selection">
      <SelectionHead {...props} />
      {!fitsLink(chosen) && <NotInLink run={run} chosen={chosen} />}
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
        <dt>User-labelled</dt>
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
