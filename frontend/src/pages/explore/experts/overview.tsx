/** Map of all experts by density and activation. A lasso selection can be turned into a table filter. */

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useNavigate } from "react-router";

import { figureQuery } from "@/api/queries";
import type { FigureData, RunSummary } from "@/api/types";
import { ExpertLink } from "@/components/experts/expert-link";
import { AddToList } from "@/components/lists/add-to-list";
import { type ColumnNames, cornerTitle, DENSITY_AXIS, inPercent, readTrace } from "@/components/plots/figure";
import { FigureView } from "@/components/plots/figure-view";
import type { PlotPoint } from "@/components/plots/plot";
import { usePageLinks } from "@/components/runs/page-links";
import { Button, RemoveChip } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useExpertRows } from "@/hooks/use-experts";
import { useIsNarrow } from "@/hooks/use-size";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";

import { MAX_IN_URL } from "./experts-params";

export interface OverviewPoint {
  readonly expert: number;
  readonly label: string | null;
  readonly density: number;
  readonly mean: number;
}

/** Points of the figure; `customdata` contains the expert and its label. */
export function overviewPoints(figure: Pick<FigureData, "data">): readonly OverviewPoint[] {
  return figure.data.map(readTrace).flatMap((trace) =>
    trace.customdata.map((custom, i) => {
      const [expert, label] = Array.isArray(custom) ? (custom as unknown[]) : [custom];
      return {
        expert: Number(expert),
        label: typeof label === "string" ? label : null,
        density: Number(trace.x[i]),
        mean: Number(trace.y[i]),
      };
    }),
  );
}

/** Number and longest length of the names beside points, so that a third of the figure holds them. */
export interface Names {
  readonly count: number;
  readonly characters: number;
}

/** The first clause of a label, shortened at a word. The full label is in the point's tooltip. */
export function shortLabel(label: string, characters: number): string {
  const clause = label.split(";")[0] ?? label;
  if (clause.length <= characters) return clause;
  const cut = clause.slice(0, characters);
  return `${cut.slice(0, cut.lastIndexOf(" ") + 1 || undefined).trimEnd()}…`;
}

/** Start of the names on the density axis, as a share of its length: right of it, points are sparse. */
const NAME_START = 0.62;
/** Distance of two names, as a share of the largest mean activation. */
const NAME_STEP = 0.11;

/** A name in the upper right corner of the figure, with a line to its point. `x` is in powers of ten. */
function nameAnnotation(name: string, point: OverviewPoint, x: number, y: number): Readonly<Record<string, unknown>> {
  return {
    text: name,
    name: "name",
    captureevents: true,
    customdata: [point.expert, point.label],
    x: Math.log10(100 * point.density),
    y: point.mean,
    axref: "x",
    ayref: "y",
    ax: x,
    ay: y,
    xanchor: "left",
    showarrow: true,
    arrowhead: 0,
    arrowwidth: 1,
    standoff: 4,
  };
}

/** The `count` labelled points with the strongest mean activation. */
export function namedPoints(points: readonly OverviewPoint[], count: number): readonly OverviewPoint[] {
  const candidates = points.filter((point) => point.label !== null && point.density > 0);
  const strongest = candidates.toSorted((a, b) => b.mean - a.mean).slice(0, count);
  // The lines from the stacked names to the points cross less often if the leftmost point has the highest name.
  return strongest.toSorted((a, b) => a.density - b.density);
}

const COLUMNS = { series: "", point: ["expert"], y: "mean activation when active" } satisfies ColumnNames;

export function overviewFigure(figure: FigureData, names: Names): FigureData {
  const points = overviewPoints(figure);
  const named = namedPoints(points, names.count);
  const lowest = Math.min(1, ...points.filter((point) => point.density > 0).map((point) => point.density));
  const range = [Math.floor(Math.log10(100 * lowest) * 2) / 2, 2.06] as const;
  const highest = Math.max(...points.map((point) => point.mean));
  const labels = {
    type: "scatter",
    mode: "markers",
    meta: { role: "labelled" },
    x: named.map((point) => 100 * point.density),
    y: named.map((point) => point.mean),
    customdata: named.map((point) => [point.expert, point.label]),
    marker: { size: 6 },
    hoverinfo: "skip",
    cliponaxis: false,
  };
  return {
    ...figure,
    data: [
      ...figure.data.map((trace) => ({
        ...trace,
        x: inPercent(trace.x),
        marker: { size: 3.5 },
        hovertemplate: "%{customdata[0]} %{text}<br>density %{x:.3f} %, mean activation %{y:.2f}<extra></extra>",
      })),
      labels,
    ],
    layout: {
      ...figure.layout,
      meta: { columns: COLUMNS },
      margin: { l: 30, r: 14, t: 8, b: 38 },
      xaxis: { ...DENSITY_AXIS, range: [...range] },
      yaxis: { rangemode: "tozero", nticks: 6 },
      annotations: [
        cornerTitle("Mean activation when active"),
        ...named.map((point, i) =>
          nameAnnotation(
            shortLabel(point.label ?? "", names.characters),
            point,
            range[0] + NAME_START * (range[1] - range[0]),
            highest * (1 - NAME_STEP * i),
          ),
        ),
      ],
    },
  };
}

/** The figure with the points of `experts` selected, as the lasso does. */
export function withSelection(figure: FigureData, experts: ReadonlySet<number>): FigureData {
  if (experts.size === 0) return figure;
  const select = (trace: FigureData["data"][number]) => {
    const { role, customdata } = readTrace(trace);
    const isSelected = (custom: unknown) => experts.has(Number(Array.isArray(custom) ? custom[0] : custom));
    const selectedpoints = customdata.flatMap((custom, i) => (isSelected(custom) ? [i] : []));
    return role === "expert" ? { ...trace, selectedpoints } : trace;
  };
  return { ...figure, data: figure.data.map(select) };
}

const MAX_LISTED = 7;

interface SelectionPaneProps {
  readonly run: RunSummary;
  readonly chosen: readonly OverviewPoint[];
  readonly onClear: () => void;
  readonly onFilter: (experts: readonly number[]) => void;
}

function span(values: readonly number[], format: (value: number) => string): string {
  return `${format(Math.min(...values))} to ${format(Math.max(...values))}`;
}

const fitsLink = (chosen: readonly OverviewPoint[]) => chosen.length <= MAX_IN_URL;

/** A selection that the URL does not hold. */
function NotInLink({ run, chosen }: Pick<SelectionPaneProps, "run" | "chosen">) {
  return (
    <p className="row wrap not-in-link" role="status">
      Too many for the link (at most {MAX_IN_URL}):{" "}
      <AddToList run={run.name} experts={chosen.map((point) => point.expert)} className="btn sm" label="Save as list" />
    </p>
  );
}

function SelectionHead({ run, chosen, onClear, onFilter }: SelectionPaneProps) {
  const experts = chosen.map((point) => point.expert);
  return (
    <div className="row pane-h wrap">
      <h2>Selection</h2>
      <span className="chip sel">
        {formatCount(chosen.length)} experts
        <RemoveChip label="Clear selection" onRemove={onClear} />
      </span>
      <span className="grow" />
      <span className="row">
        {fitsLink(chosen) && <AddToList run={run.name} experts={experts} className="btn sm" />}
        <Button size="small" onClick={() => onFilter(experts)}>
          Show in table
        </Button>
      </span>
    </div>
  );
}

/** Next to the overview: the lasso selection, if there is one. */
function SelectionPane(props: SelectionPaneProps) {
  const { run, chosen } = props;
  const labelled = chosen.filter((point) => point.label !== null);
  const listed = [...labelled, ...chosen.filter((point) => point.label === null)].slice(0, MAX_LISTED);
  const rows = useExpertRows(
    run.name,
    listed.map((point) => point.expert),
  );
  if (chosen.length === 0) return null;
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
      </dl>
      <ul className="expert-list">
        {listed.map((point) => (
          <li key={point.expert} className="row">
            <ExpertLink expert={point.expert} label={point.label} automatic={rows.get(point.expert)?.automatic} />
          </li>
        ))}
      </ul>
    </div>
  );
}

const HEIGHT = 232;
const NAMES = { count: 5, characters: 28 };
const NARROW_NAMES = { count: 2, characters: 18 };

interface OverviewProps {
  readonly run: RunSummary;
  /** Experts selected in the figure, unless they are too many for the URL. */
  readonly selected: readonly number[];
  readonly onSelected: (experts: readonly number[]) => void;
  readonly onFilter: (experts: readonly number[]) => void;
}

const NO_EXPERTS: readonly number[] = [];

function expertOf(point: PlotPoint): number {
  return Number(Array.isArray(point.key) ? point.key[0] : point.key);
}

function useSelection(
  points: readonly OverviewPoint[],
  { selected, onSelected }: Pick<OverviewProps, "selected" | "onSelected">,
) {
  const [many, setMany] = useState(NO_EXPERTS);
  const [version, setVersion] = useState(0);
  const select = (experts: readonly number[]) => {
    const fits = experts.length <= MAX_IN_URL;
    setMany(fits ? NO_EXPERTS : experts);
    onSelected(fits ? experts : NO_EXPERTS);
  };
  const selection = useMemo(() => {
    const experts = new Set(selected.length > 0 ? selected : many);
    return points.filter((point) => experts.has(point.expert));
  }, [points, selected, many]);
  const clear = () => {
    select(NO_EXPERTS);
    // A new key re-creates the figure without the outline of the lasso.
    setVersion(version + 1);
  };
  const onSelect = (chosen: readonly PlotPoint[]) => select([...new Set(chosen.map(expertOf))]);
  return { chosen: selection, onSelect, clear, version };
}

type Drag = "pan" | "lasso";

function Controls({ drag, onDrag }: { readonly drag: Drag; readonly onDrag: (drag: Drag) => void }) {
  return (
    <SegmentedControl
      label="Drag mode"
      value={drag}
      onChange={onDrag}
      segments={[
        { value: "pan", label: "Pan" },
        {
          value: "lasso",
          label: (
            <>
              <Icon name="lasso" /> Lasso
            </>
          ),
        },
      ]}
    />
  );
}

/** Folded, as the table comes first, unless the link holds a selection. */
export function Overview(props: OverviewProps) {
  const [isOpen, setOpen] = useState(props.selected.length > 0);
  return (
    <details className="overview-fold" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <b>Map of all experts</b>{" "}
        <span className="note wide-only">by density and activation; select some with the lasso</span>
      </summary>
      {isOpen && <ExpertMap {...props} />}
    </details>
  );
}

function ExpertMap({ run, onFilter, ...selecting }: OverviewProps) {
  const { data, error, refetch } = useQuery(figureQuery("density-activation", { run: run.name }));
  const [drag, setDrag] = useState<Drag>("lasso");
  const isNarrow = useIsNarrow();
  const navigate = useNavigate();
  const links = usePageLinks();
  const points = useMemo(() => (data === undefined ? [] : overviewPoints(data)), [data]);
  const figure = useMemo(() => data && overviewFigure(data, isNarrow ? NARROW_NAMES : NAMES), [data, isNarrow]);
  const { chosen, onSelect, clear, version } = useSelection(points, selecting);
  const shownFigure = useMemo(
    () => figure && withSelection(figure, new Set(chosen.map((point) => point.expert))),
    [figure, chosen],
  );
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (figure === undefined || shownFigure === undefined)
    return <LoadingState label="Loading overview" rows={8} rowHeight={34} />;
  return (
    <section className="overview">
      <div className="pane">
        <FigureView
          key={version}
          figure={shownFigure}
          title="All experts"
          note={
            <>
              {formatCount(figure.total)} of {formatCount(run.num_experts)} active
              {figure.drawn < figure.total && (
                <span title="The extremes and a random sample of the rest">; {formatCount(figure.drawn)} drawn</span>
              )}
            </>
          }
          height={isNarrow ? 190 : HEIGHT}
          dragMode={drag}
          onSelect={onSelect}
          onClick={(point) => void navigate(links.expert(expertOf(point)))}
          controls={<Controls drag={drag} onDrag={setDrag} />}
        />
      </div>
      <SelectionPane run={run} chosen={chosen} onClear={clear} onFilter={onFilter} />
    </section>
  );
}
