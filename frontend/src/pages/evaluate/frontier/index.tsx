/** Frontier: error against K over all comparable runs. */

import "@/pages/run/run.css";

import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "react-router";

import { figureQuery } from "@/api/queries";
import type { FigureData } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { withLegend } from "@/components/plots/axes/legend";
import { FigureView } from "@/components/plots/figure/figure-view";
import { ServerFigure } from "@/components/plots/figure/server-figure";
import { useCurrentRun } from "@/components/runs/current-run";
import { evaluateCommand } from "@/components/runs/latest-evaluation";
import { usePageLinks } from "@/components/runs/page-links";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useIsNarrow } from "@/hooks/use-is-narrow";

import { frontierFigure, highlightRun } from "./frontier-figure";

function NoEvaluations() {
  const { name } = useCurrentRun();
  return (
    <EmptyState title="No evaluations yet">
      Evaluate runs on held-out text to compare them here. The command accepts several runs:
      <Command text={evaluateCommand(name)} />
    </EmptyState>
  );
}

function SingleRunHint() {
  const { summary } = useCurrentRun();
  if (summary === null) return null;
  const { language_model: model, layer, text, target_tokens: tokens, k } = summary;
  return (
    <div className="frontier-hint">
      <p className="ink2">Train runs with other K or methods on this layer to draw a frontier:</p>
      <Command text={`mxd train ${model} --layer ${layer} --dataset ${text} --tokens ${tokens} --k ${2 * k}`} />
    </div>
  );
}

function FrontierFigure({ figure }: { readonly figure: FigureData }) {
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
      {figure.total === 1 && <SingleRunHint />}
    </section>
  );
}

function FrontierBody() {
  const { data, error, refetch } = useQuery(figureQuery("frontier", {}));
  const evaluated = useQuery(figureQuery("loss-frontier", {}));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading frontier" rows={12} rowHeight={36} />;
  if (data.total === 0) {
    // The evaluations are drawn above; there is nothing to add here.
    if (evaluated.data === undefined || evaluated.data.total > 0) return null;
    return <NoEvaluations />;
  }
  return <FrontierFigure figure={data} />;
}

export default function FrontierPage() {
  const { name } = useCurrentRun();
  const prepare = (figure: FigureData) => withLegend(highlightRun(figure, name));
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
