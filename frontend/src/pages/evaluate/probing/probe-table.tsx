/** Results of a probe, one row per class: the best expert, the best five, and the baselines. */

import { Link } from "react-router";

import type { ProbeSummary } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { formatCount, formatFixed } from "@/lib/text/format";

const score = (value: number | null) => (value === null ? "–" : formatFixed(value, 3));

function Row({ probeClass }: { readonly probeClass: ProbeSummary["classes"][number] }) {
  const links = usePageLinks();
  const { top1, top5, neuron, random_gate: random } = probeClass;
  return (
    <tr>
      <th scope="row">{probeClass.name}</th>
      <td className="num">{formatCount(probeClass.examples)}</td>
      <td className="num">
        <Link to={links.expert(probeClass.expert)}>{probeClass.expert}</Link>
      </td>
      <td className="num">
        <b>{score(top1.f1)}</b>
      </td>
      <td className="num ink2">
        {score(top1.low)} to {score(top1.high)}
      </td>
      <td className="num">{score(top1.balanced_accuracy)}</td>
      <td className="num">{score(top1.roc_auc)}</td>
      <td className="num">{score(top5.f1)}</td>
      <td className="num">{score(neuron.f1)}</td>
      <td className="num">{score(random.f1)}</td>
    </tr>
  );
}

export function ProbeTable({ probe }: { readonly probe: ProbeSummary }) {
  const file = probe.labels.split("/").at(-1) ?? probe.labels;
  const of = probe.level === "text" ? "texts, with activations averaged over each text" : "single tokens";
  return (
    <section className="pane settings">
      <div className="pane-h">
        <h2>{file}</h2>
        <span className="note">
          {formatCount(probe.examples)} {of}; experts selected on the validation split, scored once on the test split
        </span>
      </div>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus*/}
      <div className="facts-table" tabIndex={0} role="region" aria-label={`Probes on ${file}`}>
        <table className="grid plain">
          <thead>
            <tr>
              <th>Class</th>
              <th className="num">Examples</th>
              <th className="num">Expert</th>
              <th className="num">F1</th>
              <th className="num">95 % CI</th>
              <th className="num">Balanced acc.</th>
              <th className="num">ROC-AUC</th>
              <th className="num">F1, top 5 experts</th>
              <th className="num">Best neuron</th>
              <th className="num">Random gate</th>
            </tr>
          </thead>
          <tbody>
            {probe.classes.map((probeClass) => (
              <Row key={probeClass.name} probeClass={probeClass} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
