/** The verdict on two runs: conditions, the metrics that each is better on, and one row per kind of measure. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { interpretabilityQuery, lossDifferenceQuery } from "@/api/comparison";
import { benchmarkQuery, evaluationsQuery } from "@/api/queries";
import type { RunDetail } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";

import { commonEvaluation } from "./common-evaluation";
import { interpretabilityVerdict, type Measured } from "./interpretability";
import { deadVerdict, routingVerdict } from "./other-measures";
import { overallVerdict } from "./overall";
import { evaluationVerdict, fairness, unfairDifferences } from "./verdict";

const OTHER_MLP = "Not comparable: the runs replace different MLPs, which are worth different amounts.";
const NOT_EVALUATED = "Not evaluated on the same text.";
const LIMITS =
  "Each run has one training seed: intervals cover sequences or experts, not training, and are not corrected for the number of metrics.";
const NOT_INDEXED = "Not measured: both runs need an index (mxd index).";

interface VerdictProps {
  readonly one: RunDetail;
  readonly other: RunDetail;
  readonly isSameMlp: boolean;
}

function useMeasures(name: string, otherName: string) {
  const evaluations = [useQuery(evaluationsQuery(name)), useQuery(evaluationsQuery(otherName))] as const;
  const loss = useQuery(lossDifferenceQuery(name, otherName)).data?.difference ?? null;
  const experts = [useQuery(interpretabilityQuery(name)), useQuery(interpretabilityQuery(otherName))] as const;
  const [first, second] = evaluations;
  const measured: Measured = [experts[0].data?.measured ?? null, experts[1].data?.measured ?? null];
  return { common: commonEvaluation(first.data?.evaluations ?? [], second.data?.evaluations ?? []), loss, measured };
}

type Measures = ReturnType<typeof useMeasures>;

/** Rows on the evaluation; a single one if the runs have none in common. */
function evaluationRows({ common, loss }: Measures, isSameMlp: boolean) {
  if (!isSameMlp) return [["Faithfulness", OTHER_MLP]] as const;
  if (common === null) return [["Faithfulness", NOT_EVALUATED]] as const;
  return [
    ["Loss", loss && evaluationVerdict(common, loss)],
    ["Routing", routingVerdict(common, loss)],
  ] as const;
}

interface MoreProps {
  readonly names: readonly [string, string];
  readonly isEvaluated: boolean;
}

/** Links to pages with more results of these runs, as far as there are any. */
function MorePages({ names, isEvaluated }: MoreProps) {
  const { data } = useQuery(benchmarkQuery);
  const isBenchmarked = names.every((name) => data?.subjects.some((subject) => subject.name === name));
  const pages = [
    { page: "frontier", text: "Frontier: loss at other K", isShown: isEvaluated },
    { page: "benchmark", text: "Benchmark: sparse probes", isShown: isBenchmarked },
  ] as const;
  return pages
    .filter(({ isShown }) => isShown)
    .map(({ page, text }) => (
      <Link key={page} className="link" to={pageLinks(names[0]).page(page)}>
        {text}
      </Link>
    ));
}

export function Verdict({ one, other, isSameMlp }: VerdictProps) {
  const names = [one.run.name, other.run.name] as const;
  const measures = useMeasures(...names);
  const { common, loss, measured } = measures;
  const isFair = unfairDifferences(one.run, other.run).length === 0;
  const overall = isSameMlp ? overallVerdict(names, common, loss, measured) : [];
  const rows = [
    ...evaluationRows(measures, isSameMlp),
    ["Dead experts", deadVerdict(one, other) ?? NOT_INDEXED],
    ["Interpretability", interpretabilityVerdict(isSameMlp ? names : null, measured)],
  ] as const;
  return (
    <section className="compare-verdict" aria-label="Verdict">
      <p className={isFair ? undefined : "unfair"}>{fairness(one.run, other.run)}</p>
      {overall.map((line) => (
        <p key={line}>{line}</p>
      ))}
      {overall.length > 0 && <p className="ink2">{LIMITS}</p>}
      <dl>
        {rows.map(([kind, text]) =>
          text === null ? null : (
            <div key={kind}>
              <dt>{kind}</dt>
              <dd>{text}</dd>
            </div>
          ),
        )}
      </dl>
      <nav aria-label="More results of these runs">
        <MorePages names={names} isEvaluated={isSameMlp && common !== null} />
      </nav>
    </section>
  );
}
