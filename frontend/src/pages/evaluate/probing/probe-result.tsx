/** Result of one probe: verdict, table and figure by one metric, and method. */

import { useMemo } from "react";

import type { ProbeSummary } from "@/api/types";
import { FigureView } from "@/components/plots/figure/figure-view";
import { useCurrentRun } from "@/components/runs/current-run";
import { unitName } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { formatCount } from "@/lib/text/format";

import { DifferenceTable } from "./difference-table";
import { probeFigure, probeFigureHeight } from "./probe-figure";
import { fileName, type Metric, METRIC_NAMES, METRICS } from "./probe-metrics";
import { ProbeTable } from "./probe-table";
import { probeVerdict } from "./probe-verdict";

interface ResultProps {
  readonly run: string;
  readonly probe: ProbeSummary;
  readonly metric: Metric;
  readonly onMetric: (metric: Metric) => void;
}

/** Numbers of experts and neurons among which the best one was selected. */
function pools(run: ReturnType<typeof useCurrentRun>["runs"][number]): string {
  const units = `${formatCount(run.num_experts)} ${unitName(run)}`;
  const neurons = run.origin === null ? `, ${formatCount(run.hidden_width)} neurons` : "";
  return `${units}${neurons} and ${formatCount(run.num_experts)} units of the random gate`;
}

function Method({ run, probe }: Pick<ResultProps, "run" | "probe">) {
  const summary = useCurrentRun().runs.find(({ name }) => name === run);
  const unit = probe.level === "text" ? "text" : "token";
  return (
    <ul className="probe-method ink2">
      <li>
        Each class is probed against all others, with a logistic regression on one unit’s activation
        {probe.level === "text" ? ", averaged over the text" : " at single tokens"}. The unit with the highest{" "}
        <Term id="f1">F1</Term> on validation {unit}s is scored once on {formatCount(probe.test_examples)} test {unit}s.
      </li>
      {summary !== undefined && (
        <li>The best one is selected among {pools(summary)}. A larger pool has an advantage at equal quality.</li>
      )}
      {summary?.text.split("/").at(-1) === fileName(probe) && (
        <li>
          The run’s training file has the same name. If it is the same file, the run was trained on these texts, without
          the labels.
        </li>
      )}
      <li>
        F1 depends on the threshold of the regression, which weights both classes equally.{" "}
        <Term id="roc_auc">ROC-AUC</Term> does not; chance is 0.5, as for{" "}
        <Term id="balanced_accuracy">balanced accuracy</Term>.
      </li>
      <li>
        Intervals of F1 are bootstrapped over test {unit}s, those of ROC-AUC follow from the standard error of Hanley
        and McNeil (1982); balanced accuracy has none. Differences are means over classes with t intervals; the classes
        share their test {unit}s. No interval is corrected for the number of classes.
      </li>
    </ul>
  );
}

export function ProbeResult({ run, probe, metric, onMetric }: ResultProps) {
  const figure = useMemo(() => probeFigure(probe, metric), [probe, metric]);
  const unit = probe.level === "text" ? "texts" : "tokens";
  return (
    <>
      <section className="pane settings">
        <div className="pane-h">
          <h2>Single-expert probes of {run}</h2>
          <span className="note">
            {formatCount(probe.examples)} {unit} of {fileName(probe)} in {formatCount(probe.classes.length)} classes, of
            which {formatCount(probe.test_examples)} are test {unit}
          </span>
        </div>
        <ul className="verdict-list">
          {probeVerdict(probe.classes).map((sentence) => (
            <li key={sentence}>{sentence}</li>
          ))}
        </ul>
        <DifferenceTable probe={probe} />
        <div className="pane-h probe-metric">
          <SegmentedControl
            label="Metric"
            value={metric}
            onChange={onMetric}
            segments={METRICS.map((value) => ({ value, label: METRIC_NAMES[value] }))}
          />
          <span className="note">
            {METRIC_NAMES[metric]} on test {unit}
            {metric === "balanced-accuracy" ? "" : " (95 % interval)"}; bold: the highest of expert, neuron and random
            gate, also if their intervals overlap
          </span>
        </div>
        <ProbeTable run={run} probe={probe} metric={metric} />
        <Method run={run} probe={probe} />
      </section>
      <section className="pane settings">
        <FigureView
          figure={figure}
          note={metric === "balanced-accuracy" ? undefined : `bars: 95 % intervals over test ${unit}`}
          height={probeFigureHeight(probe)}
        />
      </section>
    </>
  );
}
