/** Overview of all experts by density and activation. A lasso selection can be turned into a table filter. */

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useNavigate } from "react-router";

import { figureQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { ExpertLink } from "@/components/experts/expert-link";
import { AddToList } from "@/components/lists/add-to-list";
import { FigureView } from "@/components/plots/figure/figure-view";
import type { PlotPoint } from "@/components/plots/plot";
import { usePageLinks } from "@/components/runs/page-links";
import { Button } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useBestExperts } from "@/hooks/use-best-experts";
import { useExpertRows } from "@/hooks/use-expert-rows";
import { useIsNarrow } from "@/hooks/use-is-narrow";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";
import { MAX_IN_URL } from "@/pages/explore/experts/experts-params";

import { overviewFigure, type OverviewPoint, overviewPoints, withSelection } from "./overview-figure";

const MAX_LISTED = 5;

interface SelectionPaneProps {
  readonly run: RunSummary;
  readonly chosen: readonly OverviewPoint[];
  readonly onClear: () => void;
  readonly onFilter: (experts: readonly number[]) => void;
}

/** The most interesting experts, for those who open the page for the first time. */
function FirstExperts({ run }: { readonly run: string }) {
  const experts = useBestExperts(run).experts.slice(0, MAX_LISTED);
  return (
    <div className="pane selection">
      <div className="pane-h wrap">
        <h2>Experts to start with</h2>
        <span className="grow" />
        <AddToList run={run} experts={experts.map(({ expert }) => expert)} className="btn sm" label="Save as list" />
      </div>
      <ul className="selected">
        {experts.map(({ expert, label, automatic }) => (
          <li key={expert}>
            <ExpertLink expert={expert} label={label} automatic={automatic} />
          </li>
        ))}
      </ul>
    </div>
  );
}

function span(values: readonly number[], format: (value: number) => string): string {
  return `${format(Math.min(...values))} to ${format(Math.max(...values))}`;
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

/** Next to the overview: the lasso selection; if nothing is selected, experts to begin with. */
function SelectionPane(props: SelectionPaneProps) {
  const { run, chosen } = props;
  const labelled = chosen.filter((point) => point.label !== null);
  const listed = [...labelled, ...chosen.filter((point) => point.label === null)].slice(0, MAX_LISTED);
  const rows = useExpertRows(
    run.name,
    listed.map((point) => point.expert),
  );
  if (chosen.length === 0) return <FirstExperts run={run.name} />;
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
      <ul className="selected">
        {listed.map((point) => (
          <li key={point.expert}>
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

interface ControlsProps {
  readonly drag: Drag;
  readonly onDrag: (drag: Drag) => void;
}

function Controls({ drag, onDrag }: ControlsProps) {
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

/** Folded on phones, where the table comes first. */
export function Overview(props: OverviewProps) {
  const isNarrow = useIsNarrow();
  const [isOpen, setOpen] = useState(!isNarrow);
  return (
    <details className="overview-fold" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <b>Map of all experts</b>{" "}
        <span className="note wide-only">by density and activation, and experts to start with</span>
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
