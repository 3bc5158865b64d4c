/** Properties of two runs in two columns. */

import type { RunDetail } from "@/api/types";

import { comparedFacts } from "./compared-facts";
import { TOLERANCE } from "./verdict";

interface FactsPaneProps {
  readonly one: RunDetail;
  readonly other: RunDetail;
}

export function FactsPane({ one, other }: FactsPaneProps) {
  const facts = comparedFacts(one, other);
  const count = facts.filter((fact) => fact.differs).length;
  return (
    <section className="pane">
      <div className="pane-h">
        <h2>Properties</h2>
        <span className="note">
          {count === 0
            ? "no differences"
            : `${count} differences, marked ≠; sizes and errors count from ${100 * TOLERANCE} %`}
        </span>
      </div>
      <table className="grid plain compare-facts" aria-label="Properties of both runs">
        <thead>
          <tr>
            <th scope="col">Property</th>
            <th scope="col" className="mono">
              {one.run.name}
            </th>
            <th scope="col">
              <span className="sr">Different</span>
            </th>
            <th scope="col" className="mono">
              {other.run.name}
            </th>
          </tr>
        </thead>
        <tbody>
          {facts.map((fact) => (
            <tr key={fact.name} className={fact.differs ? "differs" : ""}>
              <th scope="row">{fact.name}</th>
              <td>{fact.one}</td>
              <td className="mark">
                {fact.differs && (
                  <>
                    <span aria-hidden="true">≠</span>
                    <span className="sr">different</span>
                  </>
                )}
              </td>
              <td>{fact.other}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
