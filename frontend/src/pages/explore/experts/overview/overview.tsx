/** Overview of all experts by density and activation. A lasso selection can be turned into a table filter. */

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useNavigate } from "react-router";

import { figureQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { FigureView } from "@/components/plots/figure/figure-view";
import type { PlotPoint } from "@/components/plots/plot";
import { usePageLinks } from "@/components/runs/page-links";
import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useIsNarrow } from "@/hooks/use-is-narrow";
import { formatCount } from "@/lib/text/format";
import { MAX_IN_URL, type View } from "@/pages/explore/experts/experts-params";

import { mapFigure, overviewFigure, type OverviewPoint, overviewPoints, withSelection } from "./overview-figure";
import { SelectionPane } from "./selection-pane";

const HEIGHT = 232;
const NAMES = { count: 5, characters: 28 };
const NARROW_NAMES = { count: 2, characters: 18 };

interface OverviewProps {
  readonly run: RunSummary;
  readonly view: View;
  readonly onView: (view: View) => void;
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
  readonly view: View;
  readonly onView: (view: View) => void;
  readonly drag: Drag;
  readonly onDrag: (drag: Drag) => void;
}

function Controls({ view, onView, drag, onDrag }: ControlsProps) {
  return (
    <>
      <SegmentedControl
        label="Figure"
        value={view}
        onChange={onView}
        segments={[
          { value: "density-activation", label: "Density" },
          { value: "similarity-map", label: "Map" },
        ]}
      />
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
    </>
  );
}

export function Overview({ run, view, onView, onFilter, ...selecting }: OverviewProps) {
  const { data, error, refetch } = useQuery(figureQuery(view, { run: run.name }));
  const [drag, setDrag] = useState<Drag>("lasso");
  const isNarrow = useIsNarrow();
  const navigate = useNavigate();
  const links = usePageLinks();
  const points = useMemo(() => (data === undefined ? [] : overviewPoints(data)), [data]);
  const figure = useMemo(
    () =>
      data &&
      (data.name === "similarity-map" ? mapFigure(data) : overviewFigure(data, isNarrow ? NARROW_NAMES : NAMES)),
    [data, isNarrow],
  );
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
          key={`${view} ${version}`}
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
          controls={<Controls view={view} onView={onView} drag={drag} onDrag={setDrag} />}
        />
      </div>
      <SelectionPane run={run} chosen={chosen} onClear={clear} onFilter={onFilter} />
    </section>
  );
}
