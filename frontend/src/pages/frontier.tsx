/** Error against K, over all runs that can be compared. */

import "./run.css";

import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "react-router";

import { figureQuery } from "@/api/queries";
import type { FigureData } from "@/api/types";
import { Command } from "@/components/command";
import { useCurrentRun } from "@/components/current-run";
import { withLegend } from "@/components/figure/legend";
import { ServerFigure } from "@/components/figure/server-figure";
import { FigureView } from "@/components/figure/figure-view";
import { usePageLinks } from "@/components/links";
import { useIsNarrow } from "@/components/media";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";
import { evaluateCommand } from "@/components/with-evaluation";

import { frontierFigure, withOwnLine } from "./frontier/frontier-figure";

function NothingYet() {
  const { name } = useCurrentRun();
  return (
    <EmptyState title="Nothing to compare yet">
      No run has been measured on held-out text. One pass over some gives it its place here; several runs at once may be
      named:
      <Command text={evaluateCommand(name)} />
    </EmptyState>
  );
}

function OneRun() {
  const { summary } = useCurrentRun();
  if (summary === null) return null;
  const { language_model: model, layer, text, tokens_wanted: tokens, k } = summary;
  return (
    <div className="frontier-hint">
      <p className="ink2">One run is a point. Another K, or another method, on the same layer makes it a line:</p>
      <Command text={`mxd train ${model} --layer ${layer} --text ${text} --tokens ${tokens} --k ${2 * k}`} />
    </div>
  );
}

function Drawn({ figure }: { readonly figure: FigureData }) {
  const { name } = useCurrentRun();
  const links = usePageLinks();
  const navigate = useNavigate();
  const isNarrow = useIsNarrow();
  return (
    <section className="pane settings">
      <FigureView
        figure={frontierFigure(figure, name)}
        note={`${figure.total} ${figure.total === 1 ? "run" : "runs"}`}
        height={isNarrow ? 320 : 480}
        onClick={(point) => {
          const run: unknown = Array.isArray(point.key) ? point.key[0] : point.key;
          if (typeof run === "string") void navigate(links.run(run));
        }}
      />
      {figure.total === 1 && <OneRun />}
    </section>
  );
}

function FrontierBody() {
  const { data, error, refetch } = useQuery(figureQuery("frontier", {}));
  const evaluated = useQuery(figureQuery("loss-frontier", {}));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the frontier" rows={12} rowHeight={36} />;
  if (data.total === 0) {
    // What was evaluated is drawn above, and an index would add nothing to it.
    if (evaluated.data === undefined || evaluated.data.total > 0) return null;
    return <NothingYet />;
  }
  return <Drawn figure={data} />;
}

export default function FrontierPage() {
  const { name } = useCurrentRun();
  const prepare = (figure: FigureData) => withLegend(withOwnLine(figure, name));
  return (
    <>
      <title>Frontier · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Frontier" }]} />
      <ServerFigure name="loss-frontier" prepare={prepare} />
      <ServerFigure name="error-frontier" prepare={prepare} />
      <FrontierBody />
    </>
  );
}
