/** Scores of a probe by one metric, one row per class: the best expert and the baselines. */

import type { ReactNode } from "react";
import { Link } from "react-router";

import type { ProbeSummary } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { formatCount, formatFixed } from "@/lib/text/format";

import { fileName, meanScore, type Metric, METRIC_NAMES, type ProbedClass, scoreOf, scoreText } from "./probe-metrics";

/** Kinds of probes by column. The highest one is bold. */
const COLUMNS = [
  ["top1", "Best expert"],
  ["neuron", "Best neuron"],
  ["random_gate", "Random gate"],
] as const;
type Kind = (typeof COLUMNS)[number][0];

interface RowProps {
  readonly run: string;
  readonly metric: Metric;
  readonly probed: ProbedClass;
}

function Row({ run, metric, probed }: RowProps) {
  const highest = Math.max(...COLUMNS.map(([kind]) => scoreOf(probed[kind], metric) ?? 0));
  const text = (kind: Kind): ReactNode => {
    return scoreOf(probed[kind], metric) === highest ? (
      <b>{scoreText(probed[kind], metric)}</b>
    ) : (
      scoreText(probed[kind], metric)
    );
  };
  return (
    <tr>
      <th scope="row">{probed.name}</th>
      <td className="num" data-label="Test texts">
        {formatCount(probed.test_examples)}
      </td>
      <td className="num" data-label="Expert">
        <Link className="link" to={pageLinks(run).expert(probed.expert)}>
          {probed.expert}
        </Link>
      </td>
      {COLUMNS.map(([kind, name]) => (
        <td key={kind} className="num" data-label={name}>
          {text(kind)}
        </td>
      ))}
    </tr>
  );
}

interface TableProps {
  readonly run: string;
  readonly probe: ProbeSummary;
  readonly metric: Metric;
}

/** Means over classes. */
function Means({ probe: { classes }, metric }: Omit<TableProps, "run">) {
  const text = (kind: Kind) => {
    const value = meanScore(
      classes.map(({ [kind]: score }) => score),
      metric,
    );
    return value === null ? "–" : formatFixed(value, 3);
  };
  return (
    <tfoot>
      <tr>
        <th scope="row" colSpan={3}>
          Mean over {formatCount(classes.length)} classes
        </th>
        {COLUMNS.map(([kind, name]) => (
          <td key={kind} className="num" data-label={name}>
            {text(kind)}
          </td>
        ))}
      </tr>
    </tfoot>
  );
}

export function ProbeTable({ run, probe, metric }: TableProps) {
  const unit = probe.level === "text" ? "texts" : "tokens";
  const label = `Probes on ${fileName(probe)}, ${unit}: ${METRIC_NAMES[metric]}`;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="facts-table stacked probe-table" tabIndex={0} role="region" aria-label={label}>
      <table className="grid plain">
        <thead>
          <tr>
            <th>Class</th>
            <th className="num">Test {unit}</th>
            <th className="num">Expert</th>
            <th className="num">Best expert</th>
            <th className="num">
              <Term id="best_neuron">Best neuron</Term>
            </th>
            <th className="num">
              <Term id="random_gate">Random gate</Term>
            </th>
          </tr>
        </thead>
        <tbody>
          {probe.classes.map((probed) => (
            <Row key={probed.name} run={run} metric={metric} probed={probed} />
          ))}
        </tbody>
        <Means probe={probe} metric={metric} />
      </table>
    </div>
  );
}
