/** Probing: how well single experts separate labelled texts, beside the best neuron and a random gate. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { evaluationsQuery } from "@/api/queries";
import type { ProbeSummary, RunSummary } from "@/api/types";
import { withLegend } from "@/components/plots/axes/legend";
import { panelsHeight } from "@/components/plots/axes/panels";
import { ServerFigure } from "@/components/plots/figure/server-figure";
import { pageLinks } from "@/components/runs/page-links";
import { shortSource, unitName } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { Command } from "@/components/ui/copyable-command";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { choiceParam, useUrlState } from "@/hooks/use-url-state";
import { formatCount, formatFixed, formatSigned } from "@/lib/text/format";

import { type Dot, DotTable } from "./dots";

type ProbedClass = ProbeSummary["classes"][number];
type Score = ProbedClass["top1"];

/** F1 is last: it selects the units, and it depends on the threshold. */
const METRICS = ["roc_auc", "balanced_accuracy", "f1"] as const;
type Metric = (typeof METRICS)[number];
const METRIC_NAMES: Readonly<Record<Metric, string>> = {
  roc_auc: "ROC-AUC",
  balanced_accuracy: "Balanced accuracy",
  f1: "F1",
};

const COLUMNS = [
  ["top1", "Best expert"],
  ["neuron", "Best neuron"],
  ["random_gate", "Random gate"],
] as const;

const BASELINES = { neuron: "best MLP neuron", random_gate: "best unit of a random gate" } as const;

/** The score with its 95 % interval; balanced accuracy has none. */
function dotOf(score: Score, metric: Metric): Dot | null {
  const value = score[metric];
  if (value === null) return null;
  const ends = {
    roc_auc: [score.roc_auc_low, score.roc_auc_high],
    balanced_accuracy: [null, null],
    f1: [score.low, score.high],
  } as const;
  const [low, high] = ends[metric];
  return { value, low, high };
}

interface TableProps {
  readonly run: RunSummary;
  readonly probe: ProbeSummary;
  readonly metric: Metric;
}

function ClassTable({ run, probe: { classes, labels }, metric }: TableProps) {
  const rows = classes.map((probed) => ({
    key: probed.name,
    head: (
      <>
        {probed.name}
        <span className="dim">{formatCount(probed.test_examples)} in the test split</span>
      </>
    ),
    format: (value: number) => formatFixed(value, 3),
    dots: COLUMNS.map(([kind]) => dotOf(probed[kind], metric)),
    notes: [
      <Link key="expert" className="link" to={pageLinks(run.name).expert(probed.expert)}>
        {" "}
        {probed.expert}
      </Link>,
    ],
  }));
  return (
    <DotTable
      label={`Probes on ${shortSource(labels)}: ${METRIC_NAMES[metric]}`}
      corner={`Class, ${METRIC_NAMES[metric]}`}
      axis="table"
      {...(metric !== "f1" && { reference: 0.5 })}
      columns={COLUMNS.map(([kind, name]) => ({ key: kind, name, head: name }))}
      rows={rows}
    />
  );
}

/** Mean over classes of the best expert minus each baseline, by all metrics. */
function Differences({ probe: { differences, labels } }: Pick<TableProps, "probe">) {
  const rows = (Object.keys(BASELINES) as (keyof typeof BASELINES)[]).map((baseline) => {
    const found = METRICS.map((metric) =>
      differences.find((one) => one.baseline === baseline && one.metric === metric),
    );
    return {
      key: baseline,
      head: `Best expert − ${BASELINES[baseline]}`,
      format: (value: number) => formatSigned(value, 3),
      dots: found.map((one) => (one === undefined ? null : { ...one, value: one.mean })),
      notes: found.map(
        (one) =>
          one && (
            <span className="dim">
              baseline higher in {one.lost} of {one.classes}
            </span>
          ),
      ),
    };
  });
  return (
    <DotTable
      label={`Differences on ${shortSource(labels)}`}
      corner="Mean over classes"
      axis="table"
      reference={0}
      columns={METRICS.map((metric) => ({ key: metric, name: METRIC_NAMES[metric], head: METRIC_NAMES[metric] }))}
      rows={rows}
    />
  );
}

function Method({ run, probe }: Omit<TableProps, "metric">) {
  const unit = probe.level === "text" ? "text" : "token";
  return (
    <p className="note">
      Each class is probed against all others, with a logistic regression on one unit’s activation
      {probe.level === "text" ? ", averaged over the text" : " at single tokens"}. The unit with the highest{" "}
      <Term id="f1">F1</Term> on validation {unit}s is scored once on {formatCount(probe.test_examples)} test {unit}s.
      It is selected among {formatCount(run.num_experts)} {unitName(run)}
      {run.origin === null && `, ${formatCount(run.hidden_width)} neurons`} and {formatCount(run.num_experts)} units of
      the random gate; a larger pool has an advantage at equal quality. <Term id="roc_auc">ROC-AUC</Term> does not
      depend on a threshold; chance is 0.5, as for <Term id="balanced_accuracy">balanced accuracy</Term>. Intervals of
      F1 are bootstrapped over test {unit}s, those of ROC-AUC follow from the standard error of Hanley and McNeil
      (1982). Differences have t intervals over classes, which share their test {unit}s. No interval is corrected for
      the number of classes.
    </p>
  );
}

function NotProbed({ run }: { readonly run: string }) {
  return (
    <EmptyState title={`${run} has not been probed yet`}>
      <p>
        A probe measures how well single experts separate classes of text, for example languages or topics. It needs
        labelled texts, a JSONL file with a text and a label per line:
      </p>
      <Command text={'{"text": "Preheat the oven to 180 degrees.", "label": "recipe"}'} />
      <Command text={`mxd probe ${run} --labels FILE.jsonl`} />
      If the label has another name, pass it with <code>--label-column</code>.
    </EmptyState>
  );
}

const PARAMS = { metric: choiceParam(METRICS, "roc_auc") };

export function Probes({ run }: { readonly run: RunSummary }) {
  const [{ metric }, setParams] = useUrlState(PARAMS);
  const { data, error, refetch } = useQuery(evaluationsQuery(run.name));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading probes" rows={8} />;
  if (data.probes.length === 0) return <NotProbed run={run.name} />;
  return (
    <>
      {data.probes.map((probe) => (
        <section key={`${probe.labels} ${probe.level}`} className="pane settings">
          <Differences probe={probe} />
          <div className="pane-h wrap">
            <SegmentedControl
              label="Metric"
              value={metric}
              onChange={(chosen) => setParams({ metric: chosen })}
              segments={METRICS.map((value) => ({ value, label: METRIC_NAMES[value] }))}
            />
            <span className="note">
              {formatCount(probe.examples)} {probe.level}s of {shortSource(probe.labels)} in {probe.classes.length}{" "}
              classes
            </span>
          </div>
          <ClassTable run={run} probe={probe} metric={metric} />
          <Method run={run} probe={probe} />
        </section>
      ))}
      <ServerFigure name="probe-coefficients" run={run.name} height={panelsHeight} prepare={withLegend} />
    </>
  );
}
