/** Error against K, over all runs that can be compared. */

import "./run.css";

import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "react-router";

import { ApiError } from "@/api/errors";
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

import { frontierFigure } from "./frontier/frontier-figure";

function NothingYet({ reason }: { readonly reason: string }) {
  const { name } = useCurrentRun();
  return (
    <EmptyState title="Nothing to compare yet">
      {reason} One pass over held-out text gives a run its place here:
      <Command text={`mxd index ${name ?? "NAME"} --text PATH_OR_DATASET --tokens 1M`} />
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
  if (error instanceof ApiError && error.code === "no-evaluations") return <NothingYet reason={error.message} />;
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the frontier" rows={12} rowHeight={36} />;
  if (data.total === 0) return <NothingYet reason="No run has been measured on text that it was not fitted on." />;
  return <Drawn figure={data} />;
}

export default function FrontierPage() {
  return (
    <>
      <title>Frontier · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Frontier" }]} />
      <ServerFigure name="loss-frontier" prepare={withLegend} />
      <ServerFigure name="error-frontier" prepare={withLegend} />
      <FrontierBody />
    </>
  );
}
