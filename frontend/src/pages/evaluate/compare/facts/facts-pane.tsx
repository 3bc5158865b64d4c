/** Properties of two runs in two columns. */

import type { RunDetail } from "@/api/types";

import { type ComparedFact, comparedFacts } from "./compared-facts";
import { TOLERANCE } from "./fairness";

interface FactsPaneProps {
  readonly one: RunDetail;
  readonly other: RunDetail;
}

interface FactsTableProps extends FactsPaneProps {
  readonly label: string;
  readonly facts: readonly ComparedFact[];
}

function FactsTable({ one, other, label, facts }: FactsTableProps) {
  return (
    <table className="grid plain compare-facts" aria-label={label}>
      <thead>
        <tr>
          <th scope="col">Property</th>
          <th scope="col" className="mono">
            {one.run.name}
          </th>
          <th scope="col" className="mono">
            {other.run.name}
          </th>
        </tr>
      </thead>
      <tbody>
        {facts.map((fact) => (
          <tr key={fact.name}>
            <th scope="row">{fact.name}</th>
            <td>{fact.one}</td>
            <td>{fact.other}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The differences, and the rest in a closed section. */
export function FactsPane({ one, other }: FactsPaneProps) {
  const facts = comparedFacts(one, other);
  const different = facts.filter(({ differs }) => differs);
  const equal = facts.filter(({ differs }) => !differs);
  return (
    <section className="pane">
      <div className="pane-h">
        <h2>Differences</h2>
        <span className="note">
          {different.length === 0
            ? "none"
            : `${different.length} properties; sizes and errors from ${100 * TOLERANCE} %`}
        </span>
      </div>
      {different.length > 0 && <FactsTable one={one} other={other} label="Different properties" facts={different} />}
      <details className="more-metrics">
        <summary>Equal properties ({equal.length})</summary>
        <FactsTable one={one} other={other} label="Equal properties" facts={equal} />
      </details>
    </section>
  );
}
