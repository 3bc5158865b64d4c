/** Table of confidence metrics before and after. */

import type { Confidence, PrivacyResult } from "@/api/types";
import { Term } from "@/components/terms/term";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";

import { UNPROTECTED } from "./privacy-verdict";

interface MetricRow {
  readonly name: string;
  readonly note: string;
  readonly confidence: Confidence;
  /** Whether this row starts a new group. */
  readonly startsGroup: boolean;
}

const VARIATIONS: Readonly<Record<string, readonly [string, string]>> = {
  given: ["Paraphrases", "as provided"],
  "later beginning": ["Later start", "first third of the words removed"],
  "swapped case": ["Swapped case", "upper and lower case swapped"],
  [UNPROTECTED]: ["Unprotected passages", "should stay predictable"],
};

export function metricRows(result: PrivacyResult): readonly MetricRow[] {
  const pair = (name: string, note: string, { before, after }: PrivacyResult["protected"]): readonly MetricRow[] => [
    { name: `${name}, before`, note, confidence: before, startsGroup: true },
    { name: `${name}, after`, note: "", confidence: after, startsGroup: false },
  ];
  const variations = Object.entries(result.variations).flatMap(([kind, compared]) => {
    const [name, note] = VARIATIONS[kind] ?? [kind, ""];
    return pair(name, note, compared);
  });
  const attack = result.relearning;
  const relearned: readonly MetricRow[] =
    attack === null
      ? []
      : [
          { name: "Half of the passages", note: "before", confidence: attack.original, startsGroup: true },
          { name: "protected", note: "same half", confidence: attack.protected, startsGroup: false },
          {
            name: "protected, attacked",
            note: `relearning, ${attack.steps} steps on the other half`,
            confidence: attack.attacked,
            startsGroup: false,
          },
          {
            name: "before, attacked",
            note: "effect of these steps without protection",
            confidence: attack.original_attacked,
            startsGroup: false,
          },
        ];
  return [
    ...pair("Passages", `${result.passages} passages`, result.protected),
    ...variations,
    ...pair("Retain set", "held out", result.retained.confidence),
    ...relearned,
  ];
}

export function MetricsTable({ result }: { readonly result: PrivacyResult }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="figure-table" tabIndex={0} role="region" aria-label="Confidence before and after">
      <table className="grid plain privacy-metrics">
        <thead>
          <tr>
            <th>Text</th>
            <th className="num">Predictions</th>
            <th className="num">
              <Term id="confidence_distance">Distance</Term> <span className="unit">max p − 1/V</span>
            </th>
            <th className="num">
              Entropy <span className="unit">% of ln V</span>
            </th>
            <th className="num">
              Top 5 <span className="unit">%</span>
            </th>
            <th className="num">
              True token <span className="unit">%</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {metricRows(result).map(({ name, note, confidence, startsGroup }) => (
            <tr key={name} className={startsGroup ? "first" : ""}>
              <th scope="row">
                {name} <span className="unit">{note}</span>
              </th>
              <td className="num">{formatCount(confidence.predictions)}</td>
              <td className="num">{formatFixed(confidence.confidence_distance, 3)}</td>
              <td className="num">{formatPercent(confidence.entropy, 1)}</td>
              <td className="num">{formatPercent(confidence.top_five, 1)}</td>
              <td className="num">{formatPercent(confidence.true_token, 2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
