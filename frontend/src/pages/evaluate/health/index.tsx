/** Expert health: what to do about dead, dense, unevenly used and duplicate experts of a run, and the metrics. */

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";
import "./health.css";

import { useQuery } from "@tanstack/react-query";

import { runQuery } from "@/api/queries";
import type { EvaluationSummary, FigureData, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { withDensityAxis } from "@/components/plots/axes/axes";
import { withLegend } from "@/components/plots/axes/legend";
import { ServerFigure } from "@/components/plots/figure/server-figure";
import { WithRun } from "@/components/runs/current-run";
import { FactsTable } from "@/components/runs/facts-table";
import { evaluateCommand, EvaluationWarnings, WithEvaluation } from "@/components/runs/latest-evaluation";
import { pageLinks } from "@/components/runs/page-links";
import { inUnits, shortSource, unitName } from "@/components/runs/run-labels";
import { LinkButton } from "@/components/ui/button";
import { Command } from "@/components/ui/copyable-command";
import { formatCount } from "@/lib/text/format";
import { nonBreaking } from "@/lib/text/non-breaking";

import { type Finding, findings } from "./findings";
import { healthFacts } from "./health-facts";

function FindingItem({ finding, run }: { readonly finding: Finding; readonly run: string }) {
  const { level, title, advice, experts, command } = finding;
  return (
    <li data-level={level}>
      <h3>{nonBreaking(title)}</h3>
      <p className="ink2">{nonBreaking(advice)}</p>
      {experts !== undefined && (
        <LinkButton size="small" to={pageLinks(run).page("experts", experts.params)}>
          {experts.label}
        </LinkButton>
      )}
      {command?.split("\n").map((line) => (
        <Command key={line} text={line} />
      ))}
    </li>
  );
}

function Findings({ evaluation, run }: { readonly evaluation: EvaluationSummary; readonly run: RunSummary }) {
  const config = useQuery(runQuery(run.name)).data?.config;
  const found = findings(evaluation, run, config);
  const toAct = found.filter(({ level }) => level === "act").length;
  const verdict =
    toAct === 0
      ? `Nothing to change: all ${found.length} findings are within their limits`
      : `${toAct} of ${found.length} findings ${toAct === 1 ? "calls" : "call"} for an action`;
  return (
    <section className="pane settings" aria-label="Findings">
      <div className="pane-h wrap">
        <h2>{verdict}</h2>
        <span className="note">
          {run.name}, {formatCount(evaluation.tokens)} tokens of {shortSource(evaluation.text)} unless another sample is
          named; the limits are conventions of MxD Explorer
        </span>
      </div>
      <EvaluationWarnings evaluation={evaluation} />
      <ul className="findings">
        {found.map((finding) => (
          <FindingItem key={finding.title} finding={finding} run={run.name} />
        ))}
      </ul>
    </section>
  );
}

/** A density histogram whose axis says what it counts. */
function withUnitsAxis(figure: FigureData, run: RunSummary): FigureData {
  const { layout, title, data, ...rest } = withDensityAxis(figure, null);
  const yaxis = { ...(layout.yaxis ?? {}), title: { text: unitName(run) } };
  const bars = data.map((raw) => ({ ...raw, hovertemplate: inUnits(String(raw.hovertemplate), run) }));
  return { ...rest, title: inUnits(title, run), data: bars, layout: { ...layout, yaxis } };
}

/** The load curve in the words of the run's method. */
function loadFigure(figure: FigureData, run: RunSummary): FigureData {
  const { title } = (figure.layout.xaxis ?? {}) as { readonly title?: { readonly text?: string } };
  const xaxis = { ...(figure.layout.xaxis ?? {}), title: { text: inUnits(title?.text ?? "", run) } };
  return withLegend({ ...figure, title: inUnits(figure.title, run), layout: { ...figure.layout, xaxis } });
}

function RunHealth({ run }: { readonly run: RunSummary }) {
  const command = evaluateCommand(run.name);
  const sample = ({ tokens, text }: EvaluationSummary) => `${formatCount(tokens)} tokens of ${shortSource(text)}`;
  return (
    <WithEvaluation run={run.name}>
      {(evaluation) => (
        <>
          <Findings evaluation={evaluation} run={run} />
          <ServerFigure
            name="load"
            run={run.name}
            command={command}
            prepare={(figure) => loadFigure(figure, run)}
            note={`${sample(evaluation)}; at x, the least used x of the ${unitName(run)} have y of all activations`}
          />
          <ServerFigure
            name="density-evaluated"
            run={run.name}
            command={command}
            height={280}
            note={`${sample(evaluation)}; ${unitName(run)} that are active on none of them are left out`}
            prepare={(figure) => withUnitsAxis(figure, run)}
          />
          <section className="pane settings">
            <div className="pane-h">
              <h2>All metrics</h2>
              <span className="note">{sample(evaluation)}; metrics that do not apply to this run are left out</span>
            </div>
            <FactsTable label="Expert health" facts={healthFacts(evaluation.health, run)} />
          </section>
        </>
      )}
    </WithEvaluation>
  );
}

export default function HealthPage() {
  return (
    <>
      <title>Expert health · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Expert health" }]} />
      <WithRun>{(run) => <RunHealth run={run} />}</WithRun>
    </>
  );
}
