/** Metrics with 95 % confidence intervals and descriptions. */

import type { Fact } from "@/api/types";

/** A formatted value; a dash if there is none. */
export function formatFact(value: number | null | undefined, unit: Fact["unit"]): string {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return `${(100 * value).toFixed(1)} %`;
  if (unit === "count") return value.toLocaleString("en", { maximumFractionDigits: 1 });
  if (value === 0) return "0";
  return Math.abs(value) < 0.001 ? value.toExponential(1).replaceAll("-", "−") : value.toFixed(4).replace("-", "−");
}

/** The same metrics on another text. */
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
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="facts-table" tabIndex={0} role="region" aria-label={label}>
      <table className="grid plain">
        <thead>
          <tr>
            <th>Metric</th>
            <th className="num">Value</th>
            {hasIntervals && <th className="num">95 % interval</th>}
            {others.map(({ name }) => (
              <th key={name} className="num">
                On {name}
              </th>
            ))}
            <th>Description</th>
          </tr>
        </thead>
        <tbody>
          {facts.map((fact) => (
            <tr key={fact.name}>
              <th scope="row">{fact.name}</th>
              <td className="num">{formatFact(fact.value, fact.unit)}</td>
              {hasIntervals && (
                <td className="num">
                  {fact.low !== null && fact.low !== undefined
                    ? `${formatFact(fact.low, fact.unit)} to ${formatFact(fact.high, fact.unit)}`
                    : ""}
                </td>
              )}
              {others.map((other) => (
                <td key={other.name} className="num">
                  {formatFact(other.facts.find(({ name }) => name === fact.name)?.value, fact.unit)}
                </td>
              ))}
              <td className="ink2">{fact.description}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
