/** Frontier: error against K over all comparable runs. */

import "@/pages/run/run.css";

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "react-router";

import { figureQuery } from "@/api/queries";
import type { FigureData, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { hasFrontier } from "@/components/layout/navigation/pages";
import { withLegend } from "@/components/plots/axes/legend";
import { FigureView } from "@/components/plots/figure/figure-view";
import { ServerFigure } from "@/components/plots/figure/server-figure";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
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

/** One K is no frontier. */
function NoFrontier({ summary }: { readonly summary: RunSummary }) {
  const links = usePageLinks();
  const { language_model: model, layer, text, target_tokens: tokens, k } = summary;
  return (
    <EmptyState title="No frontier yet">
      A frontier shows the error of one layer at several K. Every layer here was trained at one K. To train this layer
      at another one, run:
      <Command text={`mxd train ${model} --layer ${layer} --dataset ${text} --tokens ${tokens} --k ${2 * k}`} />
      To compare methods at the same K, open <Link to={links.page("compare")}>Compare</Link> or{" "}
      <Link to={links.page("faithfulness")}>Faithfulness</Link>.
    </EmptyState>
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

function Frontier({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  if (!hasFrontier(runs)) return <NoFrontier summary={run} />;
  const prepare = (figure: FigureData) => withLegend(highlightRun(figure, run.name));
  return (
    <>
      <ServerFigure name="loss-frontier" prepare={prepare} />
      <ServerFigure name="error-frontier" prepare={prepare} />
      <FrontierBody />
    </>
  );
}

export default function FrontierPage() {
  return (
    <>
      <title>Frontier · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Frontier" }]} />
      <WithRun>{(run) => <Frontier run={run} />}</WithRun>
    </>
  );
}
