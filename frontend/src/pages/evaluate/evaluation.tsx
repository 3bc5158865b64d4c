/** Metrics of the run's evaluations: how its experts are used, and how faithful it is. */

import { Fragment } from "react";
import { Link } from "react-router";

import type { EvaluationSummary, Fact, RunSummary } from "@/api/types";
import { withLegend } from "@/components/plots/axes/legend";
import { ServerFigure } from "@/components/plots/figure/server-figure";
import { EvaluationWarnings, WithEvaluation } from "@/components/runs/latest-evaluation";
import { pageLinks } from "@/components/runs/page-links";
import { inUnits, shortSource, unitName } from "@/components/runs/run-labels";
import { Described, Term } from "@/components/terms/term";
import { formatCount } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";

/** A formatted value; a dash if there is none. */
function formatFact(value: number | null | undefined, unit: Fact["unit"]): string {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return `${(100 * value).toFixed(1)} %`;
  if (unit === "count") return value.toLocaleString("en", { maximumFractionDigits: 1 });
  if (value === 0) return "0";
  return Math.abs(value) < 0.001 ? value.toExponential(1).replaceAll("-", "−") : value.toFixed(4).replace("-", "−");
}

/** The interval, with the unit behind its upper end; empty if there is none or if both ends read the same. */
function formatInterval({ low, high, unit }: Fact): string {
  const [from, to] = [formatFact(low, unit), formatFact(high, unit)];
  return low === null || from === to ? "" : `${from.replace(" %", "")} to ${to}`;
}

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

/** Metrics with 95 % confidence intervals and descriptions. */
function FactsTable({ label, facts, others = [] }: FactsTableProps) {
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

const sampleOf = ({ tokens, sequences, text, seen_text: isSeen }: EvaluationSummary) =>
  `${formatCount(tokens)} tokens in ${formatCount(sequences)} sequences of ${shortSource(text)}${isSeen ? ", which it was trained on" : ""}`;

const metricsOf = ({ metrics }: EvaluationSummary, wanted: Fact["section"]) =>
  metrics.filter(({ section }) => section === wanted);

export function Health({ run }: { readonly run: RunSummary }) {
  const experts = (order: "asc" | "desc") => pageLinks(run.name).page("experts", { sort: "density", order });
  return (
    <WithEvaluation run={run.name}>
      {(evaluation) => (
        <section className="pane settings" aria-label="Health">
          <div className="pane-h wrap">
            <h2>Health of the {unitName(run)}</h2>
            <span className="note">
              {run.name}, {sampleOf(evaluation)}
            </span>
            <span className="grow" />
            <Link className="link" to={experts("asc")}>
              Rarest
            </Link>
            <Link className="link" to={experts("desc")}>
              Densest
            </Link>
          </div>
          <div className="health-warnings">
            <EvaluationWarnings evaluation={evaluation} />
          </div>
          <FactsTable
            label="Metrics of health"
            facts={metricsOf(evaluation, "health").map((fact) => ({
              ...fact,
              title: inUnits(fact.title, run),
              description: inUnits(fact.description, run),
            }))}
          />
        </section>
      )}
    </WithEvaluation>
  );
}

export function Faithfulness({ run }: { readonly run: RunSummary }) {
  return (
    <WithEvaluation run={run.name}>
      {(evaluation, others) => (
        <>
          <section className="pane settings">
            <p className="note">
              {sampleOf(evaluation)}. 95 % intervals: losses resample sequences, continuations count prompts (Wilson);
              none covers training seeds.
            </p>
            <FactsTable
              label="Faithfulness"
              facts={metricsOf(evaluation, "faithfulness")}
              others={others.map((other) => ({ name: shortSource(other.text), facts: other.metrics }))}
            />
          </section>
          <ServerFigure
            name="load"
            run={run.name}
            prepare={withLegend}
            note={`at x, the least used x of the ${unitName(run)} have y of all activations`}
          />
          <ServerFigure name="added-layers" prepare={withLegend} />
        </>
      )}
    </WithEvaluation>
  );
}
