/** Metrics with 95 % confidence intervals and descriptions. */

import { Fragment } from "react";

import type { Fact } from "@/api/types";

/** A formatted value; a dash if there is none. */
export function formatFact(value: number | null | undefined, unit: Fact["unit"]): string {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return `${(100 * value).toFixed(1)} %`;
  if (unit === "count") return value.toLocaleString("en", { maximumFractionDigits: 1 });
  if (value === 0) return "0";
  return Math.abs(value) < 0.001 ? value.toExponential(1).replaceAll("-", "−") : value.toFixed(4).replace("-", "−");
}

interface GroupRowProps {
  readonly fact: Fact;
  /** The fact of the row above. */
  readonly previous: Fact | undefined;
  readonly columns: number;
}

/** Heading above the first row of a group. */
export function GroupRow({ fact, previous, columns }: GroupRowProps) {
  if (fact.group == null || fact.group === previous?.group) return null;
  return (
    <tr className="facts-group">
      <th scope="rowgroup" colSpan={columns}>
        {fact.group}
      </th>
    </tr>
  );
}

/** Whether a fact belongs to the same group as the one above, whose description it shares. */
const isGrouped = (fact: Fact, previous: Fact | undefined) => fact.group != null && fact.group === previous?.group;

/** Class of the row of a fact: those of a group are indented. */
export const factRow = ({ group }: Fact) => (group == null ? undefined : "in-group");

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
  const columns = 3 + Number(hasIntervals) + others.length;
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
          {facts.map((fact, i) => (
            <Fragment key={fact.name}>
              <GroupRow fact={fact} previous={facts[i - 1]} columns={columns} />
              <tr className={factRow(fact)}>
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
                <td className="ink2">{isGrouped(fact, facts[i - 1]) ? "" : fact.description}</td>
              </tr>
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}
