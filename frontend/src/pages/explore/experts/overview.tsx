/** Map of all experts by density and activation. A lasso selection becomes a list, or a filter of the table. */

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useNavigate } from "react-router";

import { figureQuery } from "@/api/queries";
import type { FigureData, RunSummary } from "@/api/types";
import { AddToList } from "@/components/lists/add-to-list";
import { type ColumnNames, cornerTitle, DENSITY_AXIS, inPercent, readTrace } from "@/components/plots/figure";
import { FigureView } from "@/components/plots/figure-view";
import { usePageLinks } from "@/components/runs/page-links";
import { Button, RemoveChip } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useIsNarrow } from "@/hooks/use-size";
import { formatCount } from "@/lib/text/format";

import { MAX_IN_URL } from "./experts-params";

/** The expert of a point, whose `customdata` are its number, its label, and its steerability if that is measured. */
const expertOf = (custom: unknown) => Number(Array.isArray(custom) ? custom[0] : custom);

const COLUMNS = { series: "", point: ["expert"], y: "mean activation when active" } satisfies ColumnNames;

const steerabilityOf = (custom: unknown) => Number(Array.isArray(custom) ? (custom[2] ?? 0) : 0);
/** Share of the experts that have the darkest and largest points. */
const MOST_STEERABLE = 0.02;

/** Pale and small points for most experts, dark and large ones for the most steerable, so that they show in a crowd. */
function markers(customdata: readonly unknown[]) {
  const values = customdata.map(steerabilityOf);
  const top = values.toSorted((a, b) => b - a)[Math.floor(MOST_STEERABLE * values.length)] ?? 0;
  const shares = values.map((value) => (top > 0 ? Math.min(1, value / top) : 0.3));
  return {
    size: shares.map((share) => 2.5 + 4.5 * share ** 2),
    opacity: shares.map((share) => 0.12 + 0.78 * share ** 2),
  };
}

/** The server's figure in percent, with the points of `experts` selected, as the lasso does. */
export function overviewFigure(figure: FigureData, experts: ReadonlySet<number>): FigureData {
  const densities = figure.data.flatMap((trace) => readTrace(trace).x.map(Number)).filter((density) => density > 0);
  const lowest = Math.floor(Math.log10(100 * Math.min(1, ...densities)) * 2) / 2;
  return {
    ...figure,
    data: figure.data.map((trace) => {
      const { role, customdata } = readTrace(trace);
      const selectedpoints = customdata.flatMap((custom, i) => (experts.has(expertOf(custom)) ? [i] : []));
      return {
        ...trace,
        x: inPercent(trace.x),
        marker: { ...markers(customdata), line: { width: 0 } },
        hovertemplate: "%{customdata[0]} %{text}<br>density %{x:.3f} %, mean activation %{y:.2f}<extra></extra>",
        ...(role === "expert" && experts.size > 0 && { selectedpoints }),
      };
    }),
    layout: {
      ...figure.layout,
      meta: { columns: COLUMNS },
      margin: { l: 30, r: 14, t: 8, b: 38 },
      xaxis: { ...DENSITY_AXIS, range: [lowest, 2.06] },
      yaxis: { rangemode: "tozero", nticks: 6 },
      annotations: [cornerTitle("Mean activation when active")],
    },
  };
}

interface OverviewProps {
  readonly run: RunSummary;
  /** Experts selected in the figure, unless they are too many for the URL. */
  readonly selected: readonly number[];
  readonly onSelected: (experts: readonly number[]) => void;
  readonly onFilter: (experts: readonly number[]) => void;
}

interface SelectionProps extends Pick<OverviewProps, "run" | "onFilter"> {
  readonly experts: readonly number[];
  readonly onClear: () => void;
}

/** What can be done with the selected experts. */
function Selection({ run, experts, onClear, onFilter }: SelectionProps) {
  if (experts.length === 0) return null;
  return (
    <div className="row wrap selection">
      <h2>Selection</h2>
      <span className="chip sel">
        {formatCount(experts.length)} experts
        <RemoveChip label="Clear selection" onRemove={onClear} />
      </span>
      <Button size="small" onClick={() => onFilter(experts)}>
        Show in table
      </Button>
      {experts.length > MAX_IN_URL && (
        <span className="dim" role="status">
          Too many for the link (at most {MAX_IN_URL}):
        </span>
      )}
      <AddToList run={run.name} experts={experts} className="btn sm" label="Save as list" />
    </div>
  );
}

type Drag = "pan" | "lasso";

const DRAGS = [
  { value: "pan", label: "Pan" },
  {
    value: "lasso",
    label: (
      <>
        <Icon name="lasso" /> Lasso
      </>
    ),
  },
] as const;

/** Folded, as the table comes first, unless the link holds a selection. */
export function Overview(props: OverviewProps) {
  const [isOpen, setOpen] = useState(props.selected.length > 0);
  return (
    <details className="overview-fold" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <b>Map of all experts</b>{" "}
        <span className="note wide-only">
          by density and activation, the steerable ones large; select some with the lasso
        </span>
      </summary>
      {isOpen && <ExpertMap {...props} />}
    </details>
  );
}

const HEIGHT = { wide: 320, narrow: 190 } as const;
const NO_EXPERTS: readonly number[] = [];

function ExpertMap({ run, selected, onSelected, onFilter }: OverviewProps) {
  const { data, error, refetch } = useQuery(figureQuery("density-activation", { run: run.name }));
  const [drag, setDrag] = useState<Drag>("lasso");
  const [many, setMany] = useState(NO_EXPERTS);
  // A new key re-creates the figure without the outline of the lasso.
  const [version, setVersion] = useState(0);
  const isNarrow = useIsNarrow();
  const navigate = useNavigate();
  const links = usePageLinks();
  const experts = selected.length > 0 ? selected : many;
  const figure = useMemo(() => data && overviewFigure(data, new Set(experts)), [data, experts]);
  const select = (chosen: readonly number[]) => {
    const fits = chosen.length <= MAX_IN_URL;
    setMany(fits ? NO_EXPERTS : chosen);
    onSelected(fits ? chosen : NO_EXPERTS);
  };
  const clear = () => {
    select(NO_EXPERTS);
    setVersion(version + 1);
  };
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (figure === undefined) return <LoadingState label="Loading overview" rows={8} rowHeight={34} />;
  return (
    <section className="pane overview">
      <FigureView
        key={version}
        figure={figure}
        title="All experts"
        note={
          <>
            {formatCount(figure.total)} of {formatCount(run.num_experts)} active
            {figure.drawn < figure.total && (
              <span title="The extremes and a random sample of the rest">; {formatCount(figure.drawn)} drawn</span>
            )}
          </>
        }
        height={isNarrow ? HEIGHT.narrow : HEIGHT.wide}
        dragMode={drag}
        onSelect={(points) => select([...new Set(points.map(({ key }) => expertOf(key)))])}
        onClick={({ key }) => void navigate(links.expert(expertOf(key)))}
        controls={<SegmentedControl label="Drag mode" value={drag} onChange={setDrag} segments={DRAGS} />}
      />
      <Selection run={run} experts={experts} onClear={clear} onFilter={onFilter} />
    </section>
  );
}
