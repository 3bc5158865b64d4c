/** Table of confidence metrics with the original and with the fine-tuned runs. */

import type { Confidence, PrivacyResult } from "@/api/types";
import { Term } from "@/components/terms/term";
import { formatCount, formatFixed, formatPercent, formatPlural } from "@/lib/text/format";

import { OTHER_PASSAGES } from "./privacy-verdict";

interface MetricRow {
  readonly name: string;
  readonly note: string;
  readonly before: Confidence;
  readonly after: Confidence;
}

const VARIATIONS: Readonly<Record<string, readonly [string, string]>> = {
  given: ["Paraphrases", "as provided"],
  "later beginning": ["Later start", "without the first third"],
  "swapped case": ["Swapped case", ""],
  [OTHER_PASSAGES]: ["Other passages", "should not change"],
};

export function metricRows(result: PrivacyResult): readonly MetricRow[] {
  const variations = Object.entries(result.variations).map(([kind, compared]) => {
    const [name, note] = VARIATIONS[kind] ?? [kind, ""];
    return { name, note, ...compared };
  });
  return [
    { name: "Chosen passages", note: formatPlural(result.passages, "passage"), ...result.protected },
    ...variations,
    { name: "Retain set", note: "test part; should not change", ...result.retained.confidence },
  ];
}

/** The passages that the attacker does not have, before and after the attack. */
export function relearningRows({ relearning: attack }: PrivacyResult): readonly MetricRow[] {
  if (attack === null) return [];
  return [
    { name: "No attack", note: "", before: attack.original, after: attack.protected },
    { name: "After the attack", note: "", before: attack.original_attacked, after: attack.attacked },
  ];
}

const METRICS: readonly (readonly [metric: keyof Confidence, label: string, format: (value: number) => string])[] = [
  ["true_token", "True token, %", (value) => formatPercent(value, 1)],
  ["confidence_distance", "Distance", (value) => formatFixed(value, 3)],
  ["entropy", "Entropy, %", (value) => formatPercent(value, 1)],
  ["top_five", "Sum of top 5, %", (value) => formatPercent(value, 1)],
];

function Row({ name, note, before, after }: MetricRow) {
  return (
    <tr>
      <th scope="row">
        {name} <span className="unit">{note}</span>
      </th>
      <td className="num" data-label="n =">
        {formatCount(before.predictions)}
      </td>
      {METRICS.map(([metric, label, format]) => (
        <td key={metric} className="num" data-label={label}>
          {format(before[metric])} <span className="unit">→</span> {format(after[metric])}
        </td>
      ))}
    </tr>
  );
}

function Relearning({ result }: { readonly result: PrivacyResult }) {
  const attack = result.relearning;
  if (attack === null) return null;
  const others = formatPlural(result.passages - attack.passages, "passage");
  return (
    <tbody>
      <tr className="privacy-group">
        <th scope="rowgroup" colSpan={METRICS.length + 2}>
          Relearning attack: {attack.steps} fine-tuning steps on {others}{" "}
          <span className="unit">
            measured on the other {formatCount(attack.passages)}; before: the original run, after: the new run, both
            attacked the same way
          </span>
        </th>
      </tr>
      {relearningRows(result).map((row) => (
        <Row key={row.name} {...row} />
      ))}
    </tbody>
  );
}

export function MetricsTable({ result }: { readonly result: PrivacyResult }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="figure-table stacked" tabIndex={0} role="region" aria-label="Confidence before and after">
      <table className="grid plain privacy-metrics">
        <thead>
          <tr>
            <th scope="col">Text</th>
            <th scope="col" className="num">
              n
            </th>
            <th scope="col" className="num">
              <Term id="true_token">True token</Term> <span className="unit">%</span>
            </th>
            <th scope="col" className="num">
              <Term id="confidence_distance">Distance</Term> <span className="unit">max p − 1/V</span>
            </th>
            <th scope="col" className="num">
              <Term id="prediction_entropy">Entropy</Term> <span className="unit">% of ln V</span>
            </th>
            <th scope="col" className="num">
              <Term id="top_five">Sum of top 5</Term> <span className="unit">%</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {metricRows(result).map((row) => (
            <Row key={row.name} {...row} />
          ))}
        </tbody>
        <Relearning result={result} />
      </table>
    </div>
  );
}
