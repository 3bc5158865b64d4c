/** Metrics with 95 % confidence intervals and descriptions. */

import { Fragment } from "react";

import type { Fact } from "@/api/types";
import { Described, Term } from "@/components/terms/term";
import type { TermId } from "@/lib/text/glossary";

import { formatFact, formatInterval } from "./facts";

interface GroupRowProps {
  readonly fact: Fact;
  /** The fact of the row above. */
  readonly previous: Fact | undefined;
  readonly columns: number;
}

/** Heading above the first row of a group. */
function GroupRow({ fact, previous, columns }: GroupRowProps) {
  if (fact.group === previous?.group) return null;
  return (
    <tr className="facts-group">
      <th scope="rowgroup" colSpan={columns}>
        {fact.group}
      </th>
    </tr>
  );
}

/** The metric's name, linked to its definition; one that the glossary lacks has its description. */
function FactName({ fact: { title, description, term } }: { readonly fact: Fact }) {
  if (term === null) return <Described description={description}>{title}</Described>;
  return <Term id={term as TermId}>{title}</Term>;
}

/** The same metrics on another text. */
interface OtherFacts {
  readonly name: string;
  readonly facts: readonly Fact[];
}

interface FactsTableProps {
  readonly label: string;
  readonly facts: readonly Fact[];
  readonly others?: readonly OtherFacts[];
}

export function FactsTable({ label, facts, others = [] }: FactsTableProps) {
  const hasIntervals = facts.some(({ low }) => low !== null);
  const columns = 3 + Number(hasIntervals) + others.length;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="facts-table stacked" tabIndex={0} role="region" aria-label={label}>
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
            <Fragment key={fact.key}>
              <GroupRow fact={fact} previous={facts[i - 1]} columns={columns} />
              <tr className="in-group">
                <th scope="row">
                  <FactName fact={fact} />
                </th>
                <td className="num">{formatFact(fact.value, fact.unit)}</td>
                {hasIntervals && (
                  <td className="num" data-label="95 % interval">
                    {formatInterval(fact)}
                  </td>
                )}
                {others.map((other) => (
                  <td key={other.name} className="num" data-label={`On ${other.name}`}>
                    {formatFact(other.facts.find(({ key }) => key === fact.key)?.value, fact.unit)}
                  </td>
                ))}
                <td className="ink2">{fact.description}</td>
              </tr>
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}
