/** Score of the best expert minus those of the baselines, by all metrics. */

import type { ProbeSummary } from "@/api/types";
import { Term } from "@/components/terms/term";
import { formatCount } from "@/lib/text/format";

import { type Baseline, differenceOf, fileName, METRIC_NAMES, METRICS, type ProbedClass } from "./probe-metrics";
import { BASELINES } from "./probe-verdict";

interface CellProps {
  readonly classes: readonly ProbedClass[];
  readonly baseline: Baseline;
  readonly metric: (typeof METRICS)[number];
}

function Cell({ classes, baseline, metric }: CellProps) {
  const found = differenceOf(classes, baseline, metric);
  if (found === null) return <td data-label={METRIC_NAMES[metric]}>–</td>;
  const lost = `baseline higher in ${found.lost} of ${found.classes}`;
  return (
    <td className="num" data-label={METRIC_NAMES[metric]}>
      {found.sign === "no" ? found.text : <b>{found.text}</b>}
      <span className="lost">{lost}</span>
    </td>
  );
}

export function DifferenceTable({ probe }: { readonly probe: ProbeSummary }) {
  const { classes } = probe;
  const label = `Differences on ${fileName(probe)}, ${probe.level}s`;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="facts-table stacked probe-differences" tabIndex={0} role="region" aria-label={label}>
      <table className="grid plain">
        <thead>
          <tr>
            <th>
              Mean over {formatCount(classes.length)} classes (<Term id="interval">95 % interval</Term>)
            </th>
            {METRICS.map((metric) => (
              <th key={metric} className="num">
                {METRIC_NAMES[metric]}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {BASELINES.map(([baseline, name]) => (
            <tr key={baseline}>
              <th scope="row">Best expert − {name}</th>
              {METRICS.map((metric) => (
                <Cell key={metric} classes={classes} baseline={baseline} metric={metric} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
