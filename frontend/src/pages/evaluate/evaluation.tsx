/** Metrics of the run's evaluations: how its experts are used, and how faithful it is. */

import { Link } from "react-router";

import type { EvaluationSummary, Fact, RunSummary } from "@/api/types";
import { withLegend } from "@/components/plots/axes/legend";
import { ServerFigure } from "@/components/plots/figure/server-figure";
import { FactsTable } from "@/components/runs/facts-table";
import { EvaluationWarnings, WithEvaluation } from "@/components/runs/latest-evaluation";
import { pageLinks } from "@/components/runs/page-links";
import { inUnits, shortSource, unitName } from "@/components/runs/run-labels";
import { formatCount } from "@/lib/text/format";

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
