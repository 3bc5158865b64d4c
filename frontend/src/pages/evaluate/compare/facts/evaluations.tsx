/** Metrics of both runs on the same text. */

import { useQuery } from "@tanstack/react-query";
import { Fragment } from "react";
import { Link } from "react-router";

import { interpretabilityQuery, lossDifferenceQuery } from "@/api/comparison";
import { evaluationsQuery } from "@/api/queries";
import type { Fact, RunDetail } from "@/api/types";
import { formatFact } from "@/components/runs/facts";
import { factRow, GroupRow } from "@/components/runs/facts-table";
import { pageLinks } from "@/components/runs/page-links";
import { shortSource } from "@/components/runs/run-labels";
import { Command } from "@/components/ui/copyable-command";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount } from "@/lib/text/format";

import { commonEvaluation, factPairs, type CommonEvaluation } from "./common-evaluation";
import { inactiveVerdict, interpretabilityVerdict, metricsVerdict } from "./other-measures";
import { evaluationVerdict, fairness, unfairDifferences } from "./verdict";

interface EvaluationsProps {
  readonly one: string;
  readonly other: string;
}

const OTHER_MLP = "Not comparable: the runs replace different MLPs, which are worth different amounts.";

/** The verdict on both runs, one row per kind of measure. */
export function Verdict({ one, other }: { readonly one: RunDetail; readonly other: RunDetail }) {
  const [name, otherName] = [one.run.name, other.run.name];
  const evaluations = [useQuery(evaluationsQuery(name)), useQuery(evaluationsQuery(otherName))] as const;
  const loss = useQuery(lossDifferenceQuery(name, otherName));
  const experts = [useQuery(interpretabilityQuery(name)), useQuery(interpretabilityQuery(otherName))] as const;
  const [first, second] = evaluations;
  const common = commonEvaluation(first.data?.evaluations ?? [], second.data?.evaluations ?? []);
  const difference = loss.data?.difference ?? null;
  const isSameMlp = one.run.language_model === other.run.language_model && one.run.layer === other.run.layer;
  const isFair = unfairDifferences(one.run, other.run).length === 0;
  const isMeasured = experts.every(({ data }) => data !== undefined);
  const rows: readonly (readonly [string, string | null])[] = [
    ["Loss", isSameMlp ? common && difference && evaluationVerdict(common, difference) : OTHER_MLP],
    ["Other metrics", isSameMlp ? common && metricsVerdict(common) : OTHER_MLP],
    ["Inactive experts", common && inactiveVerdict(common)],
    [
      "Interpretability",
      isMeasured ? interpretabilityVerdict(experts[0].data?.measured ?? null, experts[1].data?.measured ?? null) : null,
    ],
  ];
  return (
    <section className="compare-verdict" aria-label="Verdict">
      <p className={isFair ? undefined : "unfair"}>{fairness(one.run, other.run)}</p>
      <dl>
        {rows.map(([kind, text]) => (
          <div key={kind}>
            <dt>{kind}</dt>
            <dd>{text ?? (common === null ? "Not evaluated on the same text." : "")}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function Value({ fact }: { readonly fact: Fact }) {
  const { value, low, high, unit } = fact;
  return (
    <td className="num">
      {formatFact(value, unit)}
      {low !== null && low !== undefined && (
        <span className="interval">
          {formatFact(low, unit)} to {formatFact(high, unit)}
        </span>
      )}
    </td>
  );
}

interface MetricsTableProps {
  readonly label: string;
  readonly common: CommonEvaluation;
  readonly pairs: ReturnType<typeof factPairs>;
}

function MetricsTable({ label, common, pairs }: MetricsTableProps) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="facts-table" tabIndex={0} role="region" aria-label={label}>
      <table className="grid plain">
        <thead>
          <tr>
            <th scope="col">Metric</th>
            <th scope="col" className="num mono">
              {common.one.run}
            </th>
            <th scope="col" className="num mono">
              {common.other.run}
            </th>
          </tr>
        </thead>
        <tbody>
          {pairs.map(({ name, one, other }, i) => (
            <Fragment key={name}>
              <GroupRow fact={one} previous={pairs[i - 1]?.one} columns={3} />
              <tr className={factRow(one)}>
                <th scope="row">{name}</th>
                <Value fact={one} />
                <Value fact={other} />
              </tr>
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Evaluations({ one, other }: EvaluationsProps) {
  const queries = [useQuery(evaluationsQuery(one)), useQuery(evaluationsQuery(other))] as const;
  const failed = queries.find(({ error, data }) => error !== null && data === undefined);
  if (failed !== undefined) return <ErrorState error={failed.error} onRetry={() => void failed.refetch()} />;
  const [firstQuery, secondQuery] = queries;
  if (firstQuery.data === undefined || secondQuery.data === undefined)
    return <LoadingState label="Loading evaluations" />;
  const common = commonEvaluation(firstQuery.data.evaluations, secondQuery.data.evaluations);
  return (
    <section className="pane compare-evaluation">
      <div className="pane-h">
        <h2>Evaluation</h2>
        {common !== null && (
          <>
            <span className="note">
              {formatCount(common.one.tokens)} tokens of {shortSource(common.one.text)}
            </span>
            <span className="grow" />
            <Link className="link" to={pageLinks(one).page("faithfulness")}>
              Descriptions
            </Link>
          </>
        )}
      </div>
      {common === null ? (
        <>
          <p className="ink2">These runs have not been evaluated on the same text. Run:</p>
          <Command text={`mxd evaluate ${one} ${other} --dataset HELD_OUT_TEXT --tokens 100k`} />
        </>
      ) : (
        <>
          <MetricsTable
            label="Evaluations of both runs"
            common={common}
            pairs={factPairs(common.one.faithfulness, common.other.faithfulness)}
          />
          <details className="more-metrics">
            <summary>Expert health of both runs</summary>
            <MetricsTable
              label="Expert health of both runs"
              common={common}
              pairs={factPairs(common.one.health, common.other.health)}
            />
          </details>
        </>
      )}
    </section>
  );
}
