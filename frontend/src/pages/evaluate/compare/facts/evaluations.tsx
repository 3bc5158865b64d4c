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

import { commonEvaluation, type CommonEvaluation, type FactPair, factPairs } from "./common-evaluation";
import { type Favour, favour } from "./favours";
import {
  deadVerdict,
  interpretabilityVerdict,
  metricsVerdict,
  reconstructionNote,
  routingVerdict,
} from "./other-measures";
import { evaluationVerdict, fairness, unfairDifferences } from "./verdict";

interface EvaluationsProps {
  readonly one: string;
  readonly other: string;
  readonly isSameMlp: boolean;
}

const OTHER_MLP = "Not comparable: the runs replace different MLPs, which are worth different amounts.";

interface VerdictProps {
  readonly one: RunDetail;
  readonly other: RunDetail;
  readonly isSameMlp: boolean;
}

/** The verdict on both runs, one row per kind of measure. */
export function Verdict({ one, other, isSameMlp }: VerdictProps) {
  const [name, otherName] = [one.run.name, other.run.name];
  const evaluations = [useQuery(evaluationsQuery(name)), useQuery(evaluationsQuery(otherName))] as const;
  const loss = useQuery(lossDifferenceQuery(name, otherName));
  const experts = [useQuery(interpretabilityQuery(name)), useQuery(interpretabilityQuery(otherName))] as const;
  const [first, second] = evaluations;
  const common = commonEvaluation(first.data?.evaluations ?? [], second.data?.evaluations ?? []);
  const difference = loss.data?.difference ?? null;
  const isFair = unfairDifferences(one.run, other.run).length === 0;
  const isMeasured = experts.every(({ data }) => data !== undefined);
  const rows: readonly (readonly [string, string | null])[] = [
    ["Loss", isSameMlp ? common && difference && evaluationVerdict(common, difference) : OTHER_MLP],
    ["Routing", isSameMlp ? common && routingVerdict(common) : OTHER_MLP],
    ["Other metrics", isSameMlp ? common && metricsVerdict(common) : OTHER_MLP],
    ["Dead experts", deadVerdict(one.run, other.run) ?? "Not measured: both runs need an index (mxd index)."],
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
          {formatFact(low, unit).replace(" %", "")} to {formatFact(high, unit).replace(" %", "")}
        </span>
      )}
    </td>
  );
}

const MARKS = { one: { clear: "◀", unclear: "◁" }, other: { clear: "▶", unclear: "▷" } } as const;

/** An arrow at the run that a metric favours; hollow if that is not clear. */
function FavourMark({ found, common }: { readonly found: Favour | null; readonly common: CommonEvaluation }) {
  if (found === null) return <td className="mark" />;
  const { side, isClear } = found;
  return (
    <td className="mark">
      <span aria-hidden="true">{MARKS[side][isClear ? "clear" : "unclear"]}</span>
      <span className="sr">
        favours {common[side].run}
        {isClear ? "" : ", not clearly"}
      </span>
    </td>
  );
}

interface MetricsTableProps {
  readonly label: string;
  readonly common: CommonEvaluation;
  readonly pairs: ReturnType<typeof factPairs>;
  /** Which run a metric favours; null for no metric. */
  readonly favourOf: (pair: FactPair) => Favour | null;
}

function MetricsTable({ label, common, pairs, favourOf }: MetricsTableProps) {
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
            <th scope="col" className="mark">
              <span className="sr">Favours</span>
            </th>
            <th scope="col" className="num mono">
              {common.other.run}
            </th>
          </tr>
        </thead>
        <tbody>
          {pairs.map((pair, i) => (
            <Fragment key={pair.name}>
              <GroupRow fact={pair.one} previous={pairs[i - 1]?.one} columns={4} />
              <tr className={factRow(pair.one)}>
                <th scope="row">{pair.name}</th>
                <Value fact={pair.one} />
                <FavourMark found={favourOf(pair)} common={common} />
                <Value fact={pair.other} />
              </tr>
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const NO_FAVOUR = () => null;

/** The metrics of both runs, with arrows if they replace the same MLP. */
function CommonTables({ common, isSameMlp }: { readonly common: CommonEvaluation; readonly isSameMlp: boolean }) {
  const { data: loss } = useQuery(lossDifferenceQuery(common.one.run, common.other.run));
  const pairs = factPairs(common.one.faithfulness, common.other.faithfulness);
  const note = isSameMlp ? reconstructionNote(pairs) : null;
  return (
    <>
      {isSameMlp && (
        <p className="ink2">
          ◀ ▶ favours this run, clearly: the paired difference excludes zero or the intervals do not overlap. ◁ ▷ not
          clearly. Jacobian agreement counts minus its control.
        </p>
      )}
      {note !== null && <p className="ink2">{note}</p>}
      <MetricsTable
        label="Evaluations of both runs"
        common={common}
        pairs={pairs}
        favourOf={isSameMlp ? (pair) => favour(pair, pairs, loss?.difference ?? null) : NO_FAVOUR}
      />
      <details className="more-metrics">
        <summary>Expert health of both runs</summary>
        <MetricsTable
          label="Expert health of both runs"
          common={common}
          pairs={factPairs(common.one.health, common.other.health)}
          favourOf={NO_FAVOUR}
        />
      </details>
    </>
  );
}

export function Evaluations({ one, other, isSameMlp }: EvaluationsProps) {
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
        <CommonTables common={common} isSameMlp={isSameMlp} />
      )}
    </section>
  );
}
