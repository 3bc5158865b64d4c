/** What was measured: how sure, on what, before and after. */

import type { Certainty, PrivacyResult } from "@/api/types";
import { formatCount, formatFixed, formatPercent } from "@/lib/format";

interface Line {
  readonly name: string;
  readonly note: string;
  readonly found: Certainty;
  /** Whether a new group begins here. */
  readonly first: boolean;
}

const OTHERWISE: Readonly<Record<string, readonly [string, string]>> = {
  given: ["Paraphrases", "as they were given"],
  "later beginning": ["Later beginning", "without the first third of the words"],
  "swapped case": ["Swapped case", "every letter in the other case"],
};

export function linesOf(result: PrivacyResult): readonly Line[] {
  const pair = (name: string, note: string, { before, after }: PrivacyResult["protected"]): readonly Line[] => [
    { name: `${name}, before`, note, found: before, first: true },
    { name: `${name}, after`, note: "", found: after, first: false },
  ];
  const otherwise = Object.entries(result.otherwise).flatMap(([kind, compared]) => {
    const [name, note] = OTHERWISE[kind] ?? [kind, ""];
    return pair(name, note, compared);
  });
  const attack = result.relearning;
  const relearnt: readonly Line[] =
    attack === null
      ? []
      : [
          { name: "Half of the passages", note: "before", found: attack.original, first: true },
          { name: "protected", note: "the same half", found: attack.protected, first: false },
          {
            name: "protected, attacked",
            note: `${attack.steps} steps on the other half`,
            found: attack.attacked,
            first: false,
          },
          {
            name: "before, attacked",
            note: "what these steps teach by themselves",
            found: attack.original_attacked,
            first: false,
          },
        ];
  return [
    ...pair("Passages", `${result.passages} in all`, result.protected),
    ...otherwise,
    ...pair("Other text", "not fitted on", result.retained.certainty),
    ...relearnt,
  ];
}

export function Measures({ result }: { readonly result: PrivacyResult }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a box that scrolls must be reachable by key
    <div className="figure-table" tabIndex={0} role="region" aria-label="How sure, before and after">
      <table className="grid plain privacy-measures">
        <thead>
          <tr>
            <th>On</th>
            <th className="num">Predictions</th>
            <th className="num">
              Distance <span className="unit">max p − 1/V</span>
            </th>
            <th className="num">
              Entropy <span className="unit">% of ln V</span>
            </th>
            <th className="num">
              Top five <span className="unit">%</span>
            </th>
            <th className="num">
              True token <span className="unit">%</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {linesOf(result).map(({ name, note, found, first }) => (
            <tr key={name} className={first ? "first" : ""}>
              <th scope="row">
                {name} <span className="unit">{note}</span>
              </th>
              <td className="num">{formatCount(found.predictions)}</td>
              <td className="num">{formatFixed(found.confidence_distance, 3)}</td>
              <td className="num">{formatPercent(found.entropy, 1)}</td>
              <td className="num">{formatPercent(found.top_five, 1)}</td>
              <td className="num">{formatPercent(found.true_token, 2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
