/** Frontier of a layer: loss increase and error of its runs against K, and loss recovered against parameters. */

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";
import "./frontier.css";

import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "react-router";

import { frontierQuery } from "@/api/comparison";
import type { Frontier, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { FigureView, type ViewedFigure } from "@/components/plots/figure/figure-view";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { evaluateCommand } from "@/components/runs/latest-evaluation";
import { usePageLinks } from "@/components/runs/page-links";
import { shortSource } from "@/components/runs/run-labels";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useIsNarrow } from "@/hooks/use-is-narrow";
import { formatCount } from "@/lib/text/format";
import { nonBreaking } from "@/lib/text/non-breaking";

import { frontierFigure, MEASURES } from "./frontier-figure";
import { FrontierTable } from "./frontier-table";
import {
  conditionsNotes,
  errorNote,
  frontierVerdict,
  intervalNote,
  ksOf,
  ownLine,
  routingNote,
  truncationNote,
} from "./frontier-verdict";
import { NoFrontier, TrainAtTheseK } from "./no-frontier";
import { evaluatedRuns, sizeFigure } from "./size-figure";

/** A figure whose points open their run. */
function RunFigure({ figure, note }: { readonly figure: ViewedFigure; readonly note?: string }) {
  const isNarrow = useIsNarrow();
  const links = usePageLinks();
  const navigate = useNavigate();
  return (
    <section className="pane">
      <FigureView
        figure={figure}
        note={note}
        height={isNarrow ? 300 : 360}
        onClick={(point) => {
          if (typeof point.key === "string") void navigate(links.run(point.key));
        }}
      />
    </section>
  );
}

/** What the number of parameters changes, for runs of one layer that differ in it. */
function SizeFigure({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  const evaluated = evaluatedRuns(runs, run);
  if (new Set(evaluated.map(({ parameters }) => parameters.toPrecision(2))).size < 2) return null;
  const samples = [...new Set(evaluated.map(({ held_out: { tokens } }) => formatCount(tokens)))];
  return (
    <div className="settings">
      <RunFigure
        figure={sizeFigure(evaluated, run.name)}
        note={`${evaluated.length} runs of layer ${run.layer}, ${samples.join(" or ")} held-out tokens each, 95 % intervals`}
      />
    </div>
  );
}

function FrontierView({ frontier, run }: { readonly frontier: Frontier; readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  const notes = [
    ...conditionsNotes(frontier, runs),
    truncationNote(frontier),
    routingNote(frontier),
    errorNote(frontier),
    intervalNote(frontier),
  ];
  return (
    <>
      <section className="pane settings" aria-label="Verdict">
        <div className="pane-h wrap">
          <h2>
            Layer {run.layer} of {run.language_model_name}
          </h2>
          <span className="note">
            {formatCount(frontier.tokens)} tokens in {formatCount(frontier.sequences)} sequences of{" "}
            {shortSource(frontier.text)}
            {frontier.seen_text ? ", which the run was trained on" : ""}
          </span>
        </div>
        {frontierVerdict(frontier).map((verdict) => (
          <p key={verdict} className="verdict">
            {nonBreaking(verdict)}
          </p>
        ))}
        <ul className="frontier-notes ink2">
          {notes.map((note) => note !== null && <li key={note}>{nonBreaking(note)}</li>)}
        </ul>
      </section>
      <div className="frontier-figures">
        {MEASURES.map((measure) => (
          <RunFigure key={measure.name} figure={frontierFigure(frontier, measure)} />
        ))}
      </div>
      <section className="pane settings">
        <div className="pane-h">
          <h2>All points</h2>
          <span className="note">with 95 % intervals</span>
        </div>
        <FrontierTable frontier={frontier} own={ownLine(frontier)?.name ?? run.name} />
        <TrainAtTheseK run={run} frontier={frontier} />
      </section>
    </>
  );
}

function FrontierOf({ run }: { readonly run: RunSummary }) {
  const { data, error, refetch } = useQuery(frontierQuery(run.name));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading frontier" rows={12} rowHeight={36} />;
  const { frontier } = data;
  if (frontier === null)
    return (
      <EmptyState title="Not evaluated yet">
        Evaluate the runs of a layer on held-out text to compare them here. The command accepts several runs:
        <Command text={evaluateCommand(run.name)} />
      </EmptyState>
    );
  return (
    <>
      {ksOf(frontier.lines).length > 1 ? <FrontierView frontier={frontier} run={run} /> : <NoFrontier run={run} />}
      <SizeFigure run={run} />
    </>
  );
}

export default function FrontierPage() {
  return (
    <>
      <title>Frontier · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Frontier" }]} />
      <WithRun>{(run) => <FrontierOf key={run.name} run={run} />}</WithRun>
    </>
  );
}
