/** Results of a probe, one row per class: the best expert, the best five, and the baselines. */

import { Link } from "react-router";

import type { ProbeSummary } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { unitName } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { formatCount, formatFixed } from "@/lib/text/format";

import { expertAdvantage, probeVerdict } from "./probe-verdict";

const score = (value: number | null) => (value === null ? "–" : formatFixed(value, 3));

interface RowProps {
  readonly run: string;
  readonly probeClass: ProbeSummary["classes"][number];
}

function Row({ run, probeClass }: RowProps) {
  const links = pageLinks(run);
  const { top1, top5, neuron, random_gate: random } = probeClass;
  return (
    <tr>
      <th scope="row">{probeClass.name}</th>
      <td className="num">{formatCount(probeClass.examples)}</td>
      <td className="num">
        <Link to={links.expert(probeClass.expert)}>{probeClass.expert}</Link>
      </td>
      <td className="num">{expertAdvantage(probeClass) < 0 ? score(top1.f1) : <b>{score(top1.f1)}</b>}</td>
      <td className="num ink2">
        {score(top1.low)} to {score(top1.high)}
      </td>
      <td className="num">{score(top1.balanced_accuracy)}</td>
      <td className="num">{score(top1.roc_auc)}</td>
      <td className="num">{score(top5.f1)}</td>
      <td className="num">
        {expertAdvantage(probeClass) < 0 ? (
          <b title="Better than the best expert">{score(neuron.f1)}</b>
        ) : (
          score(neuron.f1)
        )}
      </td>
      <td className="num">{score(random.f1)}</td>
    </tr>
  );
}

/** Numbers of experts and neurons among which the best one was selected. */
function Pools({ run }: { readonly run: string }) {
  const summary = useCurrentRun().runs.find(({ name }) => name === run);
  if (summary === undefined) return null;
  const units = `${formatCount(summary.num_experts)} ${unitName(summary)}`;
  const neurons = summary.origin === null ? `, ${formatCount(summary.hidden_width)} MLP neurons` : "";
  return (
    <p className="ink2 probe-pools">
      Each best one is selected among {units}
      {neurons} and {formatCount(summary.num_experts)} units of the random gate. A larger pool has an advantage, so the
      random gate is the control of equal size.
    </p>
  );
}

export function ProbeTable({ run, probe }: { readonly run: string; readonly probe: ProbeSummary }) {
  const file = probe.labels.split("/").at(-1) ?? probe.labels;
  const of = probe.level === "text" ? "texts, with activations averaged over each text" : "single tokens";
  return (
    <section className="pane settings">
      <div className="pane-h">
        <h2>Single-expert probes of {run}</h2>
        <span className="note">
          {formatCount(probe.examples)} {of}, of {file}; experts selected on the validation split, scored once on the
          test split; bold: the higher F1 of best expert and best neuron
        </span>
      </div>
      <p className="verdict">{probeVerdict(probe.classes)}</p>
      <Pools run={run} />
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus*/}
      <div className="facts-table" tabIndex={0} role="region" aria-label={`Probes on ${file}`}>
        <table className="grid plain">
          <thead>
            <tr>
              <th>Class</th>
              <th className="num">Examples</th>
              <th className="num">Best expert</th>
              <th className="num">
                <Term id="f1">F1</Term>
              </th>
              <th className="num">
                <Term id="interval">95 % interval</Term>
              </th>
              <th className="num">
                <Term id="balanced_accuracy">Balanced acc.</Term>
              </th>
              <th className="num">
                <Term id="roc_auc">ROC-AUC</Term>
              </th>
              <th className="num">
                <Term id="top5_experts">F1, 5 experts</Term>
              </th>
              <th className="num">
                <Term id="best_neuron">F1, best neuron</Term>
              </th>
              <th className="num">
                <Term id="random_gate">F1, random gate</Term>
              </th>
            </tr>
          </thead>
          <tbody>
            {probe.classes.map((probeClass) => (
              <Row key={probeClass.name} run={run} probeClass={probeClass} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
