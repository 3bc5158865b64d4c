/** Metrics of both runs on the same text. */

import { useQuery } from "@tanstack/react-query";
import { Fragment } from "react";

import { lossDifferenceQuery } from "@/api/comparison";
import { evaluationsQuery } from "@/api/queries";
import type { Fact, LossDifference } from "@/api/types";
import { formatFact, formatInterval } from "@/components/runs/facts";
import { FactName, factRow, GroupRow } from "@/components/runs/facts-table";
import { shortSource } from "@/components/runs/run-labels";
import { Command } from "@/components/ui/copyable-command";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useIsNarrow } from "@/hooks/use-is-narrow";
import { formatCount, formatSigned } from "@/lib/text/format";
import { measuredFacts } from "@/pages/evaluate/health/health-facts";

import { commonEvaluation, type CommonEvaluation, type FactPair, factPairs } from "./common-evaluation";
import { type Favour, favour, isOfTheLoss } from "./favours";
import { reconstructionNote } from "./other-measures";

interface EvaluationsProps {
  readonly one: string;
  readonly other: string;
  readonly isSameMlp: boolean;
}

function Value({ fact }: { readonly fact: Fact }) {
  return (
    <td className="num">
      {formatFact(fact.value, fact.unit)}
      <span className="interval">{formatInterval(fact).replace(" %", "")}</span>
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
      <span className="sr">{isClear ? `favours ${common[side].run}` : "undecided"}</span>
    </td>
  );
}

/** How the difference of a metric was judged: by the rule of the legend. */
function ruleOf(pair: FactPair, { isClear }: Favour, loss: LossDifference | null): string {
  const basis = pair.name.startsWith("Jacobian agreement") ? "minus control; " : "";
  if (!isOfTheLoss(pair)) return basis + (isClear ? "intervals apart" : "intervals overlap, not paired");
  if (loss === null || pair.name !== "Loss increase") return "as the loss increase";
  return `paired, ${formatSigned(loss.low, 4)} to ${formatSigned(loss.high, 4)}`;
}

/** The first run minus the other, and how that was judged. */
function Difference({ pair, found, loss }: Pick<TableProps, "loss"> & DifferenceOf) {
  if (found === null) return <td className="difference" />;
  const { difference } = found;
  const isShare = pair.one.unit === "share";
  const text = isShare
    ? `${formatSigned(100 * difference, 1)} points`
    : `${difference > 0 ? "+" : ""}${formatFact(difference, pair.one.unit)}`;
  return (
    <td className="num difference">
      {text}
      <span className="interval">{ruleOf(pair, found, loss)}</span>
    </td>
  );
}

interface DifferenceOf {
  readonly pair: FactPair;
  readonly found: Favour | null;
}

interface TableProps {
  readonly label: string;
  readonly common: CommonEvaluation;
  readonly pairs: readonly FactPair[];
  /** Whether the metrics are compared. */
  readonly isCompared: boolean;
  /** Whether there is room for the column of differences. */
  readonly hasDifferences: boolean;
  readonly loss: LossDifference | null;
}

function Head({ common, hasDifferences }: Pick<TableProps, "common" | "hasDifferences">) {
  return (
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
        {hasDifferences && (
          <th scope="col" className="num difference">
            Difference
          </th>
        )}
      </tr>
    </thead>
  );
}

function MetricsTable({ label, common, pairs, isCompared, loss }: Omit<TableProps, "hasDifferences">) {
  const isNarrow = useIsNarrow();
  const hasDifferences = isCompared && !isNarrow;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="facts-table" tabIndex={0} role="region" aria-label={label}>
      <table className="grid plain">
        <Head common={common} hasDifferences={hasDifferences} />
        <tbody>
          {pairs.map((pair, i) => {
            const found = isCompared ? favour(pair, pairs, loss) : null;
            return (
              <Fragment key={pair.name}>
                <GroupRow fact={pair.one} previous={pairs[i - 1]?.one} columns={hasDifferences ? 5 : 4} />
                <tr className={factRow(pair.one)}>
                  <th scope="row">
                    <FactName fact={pair.one} />
                  </th>
                  <Value fact={pair.one} />
                  <FavourMark found={found} common={common} />
                  <Value fact={pair.other} />
                  {hasDifferences && <Difference pair={pair} found={found} loss={loss} />}
                </tr>
              </Fragment>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** The one rule of all arrows. */
function Legend() {
  return (
    <p className="ink2">
      ◀ ▶ The metric favours this run. Loss: the 95 % interval of the difference, paired by sequence, excludes zero.
      Other metrics: the two 95 % intervals do not overlap, which is a stricter rule. Only the loss is stored per
      sequence, so they are not tested in pairs. ◁ ▷ Undecided by the same rule. Jacobian agreement counts minus its
      control.
    </p>
  );
}

/** The metrics of both runs, with arrows if they replace the same MLP. */
function CommonTables({ common, isSameMlp }: { readonly common: CommonEvaluation; readonly isSameMlp: boolean }) {
  const { data } = useQuery(lossDifferenceQuery(common.one.run, common.other.run));
  const loss = data?.difference ?? null;
  const pairs = factPairs(common.one.faithfulness, common.other.faithfulness);
  const note = isSameMlp ? reconstructionNote(pairs) : null;
  return (
    <>
      {isSameMlp && <Legend />}
      {note !== null && <p className="ink2">{note}</p>}
      <MetricsTable label="Evaluations of both runs" common={common} pairs={pairs} isCompared={isSameMlp} loss={loss} />
      <details className="more-metrics">
        <summary>Expert health of both runs</summary>
        <MetricsTable
          label="Expert health of both runs"
          common={common}
          pairs={factPairs(measuredFacts(common.one.health), measuredFacts(common.other.health))}
          isCompared={false}
          loss={null}
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
          <span className="note">
            {formatCount(common.one.tokens)} tokens of {shortSource(common.one.text)}
          </span>
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
