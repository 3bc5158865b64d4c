/** A run on one set of labelled texts: every class, by one expert, by five, and what these are to be compared with. */

import { Link } from "react-router";

import type { ProbeSummary } from "@/api/types";
import { usePageLinks } from "@/components/links";
import { formatCount, formatFixed } from "@/lib/format";

const score = (value: number | null) => (value === null ? "–" : formatFixed(value, 3));

function Row({ of }: { readonly of: ProbeSummary["classes"][number] }) {
  const links = usePageLinks();
  const { one, five, neuron, random_gate: random } = of;
  return (
    <tr>
      <th scope="row">{of.name}</th>
      <td className="num">{formatCount(of.examples)}</td>
      <td className="num">
        <Link to={links.expert(of.expert)}>{of.expert}</Link>
      </td>
      <td className="num">
        <b>{score(one.f1)}</b>
      </td>
      <td className="num ink2">
        {score(one.low)} to {score(one.high)}
      </td>
      <td className="num">{score(one.balanced_accuracy)}</td>
      <td className="num">{score(one.roc_auc)}</td>
      <td className="num">{score(five.f1)}</td>
      <td className="num">{score(neuron.f1)}</td>
      <td className="num">{score(random.f1)}</td>
    </tr>
  );
}

export function ProbeTable({ probe }: { readonly probe: ProbeSummary }) {
  const file = probe.labels.split("/").at(-1) ?? probe.labels;
  const of = probe.level === "text" ? "texts, coefficients averaged over each" : "single tokens";
  return (
    <section className="pane settings">
      <div className="pane-h">
        <h2>{file}</h2>
        <span className="note">
          {formatCount(probe.examples)} {of}; expert chosen on validation texts, scored once on test texts
        </span>
      </div>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a box that scrolls must be reachable by key */}
      <div className="facts-table" tabIndex={0} role="region" aria-label={`Probes on ${file}`}>
        <table className="grid plain">
          <thead>
            <tr>
              <th>Class</th>
              <th className="num">Texts</th>
              <th className="num">Expert</th>
              <th className="num">F1</th>
              <th className="num">95 % interval</th>
              <th className="num">Balanced acc.</th>
              <th className="num">ROC-AUC</th>
              <th className="num">F1 of five</th>
              <th className="num">Best neuron</th>
              <th className="num">Random gate</th>
            </tr>
          </thead>
          <tbody>
            {probe.classes.map((one) => (
              <Row key={one.name} of={one} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
