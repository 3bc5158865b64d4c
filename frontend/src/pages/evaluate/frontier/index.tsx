/** Frontier: loss and error against K, and loss recovered against parameters. */

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";
import "./frontier.css";

import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "react-router";

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

import { formatCount } from "@/lib/text/format";

import { frontierFigure, highlightRun } from "./frontier-figure";
import { NoFrontier } from "./no-frontier";
import { evaluatedRuns, sizeFigure } from "./size-figure";

function NoEvaluations() {
  const { name } = useCurrentRun();
  return (
    <EmptyState title="No evaluations yet">
      Evaluate runs on held-out text to compare them here. The command accepts several runs:
      <Command text={evaluateCommand(name)} />
    </EmptyState>
  );
}

/** What else changes the loss, for runs whose K is the same. */
function SizeFigure({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  const isNarrow = useIsNarrow();
  const links = usePageLinks();
  const navigate = useNavigate();
  const evaluated = evaluatedRuns(runs, run.language_model);
  const layers = new Set(evaluated.map(({ layer }) => layer)).size;
  const samples = [...new Set(evaluated.map(({ held_out: { tokens } }) => formatCount(tokens)))];
  if (evaluated.length < 2) return null;
  return (
    <section className="pane settings">
      <FigureView
        figure={sizeFigure(evaluated, run.name)}
        note={`${evaluated.length} runs, ${samples.join(" or ")} held-out tokens each, 95 % intervals`}
        height={isNarrow ? 320 : 360}
        onClick={(point) => {
          if (typeof point.key === "string") void navigate(links.run(point.key));
        }}
      />
      {layers > 1 && (
        <p className="ink2">
          Only runs of the same layer are a fair comparison: each layer’s MLP has its own loss to recover.
        </p>
      )}
    </section>
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

/** Errors from the indexes, for runs without evaluations: those on held-out text are a better comparison. */
function IndexedFrontier() {
  const { data, error, refetch } = useQuery(figureQuery("frontier", {}));
  const evaluated = useQuery(figureQuery("loss-frontier", {}));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined || evaluated.data === undefined)
    return <LoadingState label="Loading frontier" rows={12} rowHeight={36} />;
  if (evaluated.data.total > 0) return null;
  return (
    <>
      <NoEvaluations />
      {data.total > 0 && <FrontierFigure figure={data} />}
    </>
  );
}

function Frontier({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  const prepare = (figure: FigureData) => withLegend(highlightRun(figure, run.name));
  if (!hasFrontier(runs))
    return (
      <>
        <NoFrontier run={run} />
        <SizeFigure run={run} />
      </>
    );
  return (
    <>
      <ServerFigure name="loss-frontier" prepare={prepare} />
      <ServerFigure name="error-frontier" prepare={prepare} />
      <IndexedFrontier />
      <SizeFigure run={run} />
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
