/** Figures with their 95 % intervals and what each is, as a table. */

import type { Fact } from "@/api/types";

/** The value as it stands in a table; a dash where there is none. */
export function shown(value: number | null | undefined, unit: Fact["unit"]): string {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return `${(100 * value).toFixed(1)} %`;
  if (unit === "count") return value.toLocaleString("en", { maximumFractionDigits: 1 });
  return Math.abs(value) < 0.001 && value !== 0 ? value.toExponential(1) : value.toFixed(4);
}

/** The same figures on another text. */
export interface OtherFacts {
  readonly name: string;
  readonly facts: readonly Fact[];
}

interface FactsTableProps {
  readonly label: string;
  readonly facts: readonly Fact[];
  readonly others?: readonly OtherFacts[];
}

export function FactsTable({ label, facts, others = [] }: FactsTableProps) {
  const hasIntervals = facts.some(({ low }) => low !== null && low !== undefined);
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a box that scrolls must be reachable by key
    <div className="facts-table" tabIndex={0} role="region" aria-label={label}>
      <table className="grid plain">
        <thead>
          <tr>
            <th>Figure</th>
            <th className="num">Value</th>
            {hasIntervals && <th className="num">95 % interval</th>}
            {others.map(({ name }) => (
              <th key={name} className="num">
                On {name}
              </th>
            ))}
            <th>What it is</th>
          </tr>
        </thead>
        <tbody>
          {facts.map((fact) => (
            <tr key={fact.name}>
              <th scope="row">{fact.name}</th>
              <td className="num">{shown(fact.value, fact.unit)}</td>
              {hasIntervals && (
                <td className="num">
                  {fact.low !== null && fact.low !== undefined
                    ? `${shown(fact.low, fact.unit)} to ${shown(fact.high, fact.unit)}`
                    : ""}
                </td>
              )}
              {others.map((other) => (
                <td key={other.name} className="num">
                  {shown(other.facts.find(({ name }) => name === fact.name)?.value, fact.unit)}
                </td>
              ))}
              <td className="ink2">{fact.meaning}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
