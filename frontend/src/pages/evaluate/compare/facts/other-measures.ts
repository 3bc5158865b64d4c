/** What a comparison says besides the loss: routing, reconstruction and dead experts. */

import type { Fact, LossDifference, RunDetail } from "@/api/types";
import { formatFact, formatInterval } from "@/components/runs/facts";
import { shortSource } from "@/components/runs/run-labels";
import { formatCount } from "@/lib/text/format";

import { type CommonEvaluation, type FactPair, factPairs } from "./common-evaluation";
import { favour } from "./favours";

/** Why normalised MSE and variance explained can favour different runs; null if they do not clearly do so. */
export function reconstructionNote(pairs: readonly FactPair[]): string | null {
  const [mse, variance] = ["Normalised MSE", "Variance explained"].map((name) => {
    const pair = pairs.find((one) => one.name === name);
    return pair === undefined ? null : favour(pair, pairs, null);
  });
  if (!mse?.isClear || !variance?.isClear || mse.side === variance.side) return null;
  return (
    "Normalised MSE and variance explained favour different runs. Both can be true: normalised MSE divides each token’s error by its own ‖y‖², so every token counts equally. " +
    "Variance explained divides the summed error by the total variance, so tokens with a large output count most."
  );
}

/** What a share above 1 means. It says nothing on the part of the layer that is left with frozen routing. */
const ABOVE_ALL =
  " Above 100 %, the frozen layer predicts worse than the MLP’s mean output. Such a share does not measure what a skip path adds, so the shares do not rank the runs.";

/** What follows from a lower routing share for the loss increase of the run. */
function routingConsequence(run: string, advantage: Advantage): string {
  const lowered = ` More of ${run} works without routing, which can lower its loss increase.`;
  if (advantage === "none") return lowered;
  const still = " Its loss increase is higher even so.";
  return lowered + (advantage === "worse" ? still : " Part of its advantage can come from this.");
}

type Advantage = "better" | "worse" | "none";

/** Whether the loss increase of a run is clearly lower or higher than that of the other run. */
function advantageOf(isFirst: boolean, loss: LossDifference | null): Advantage {
  if (loss === null || (loss.low <= 0 && loss.high >= 0)) return "none";
  return loss.value < 0 === isFirst ? "better" : "worse";
}

/** Routing shares of both runs, and which loss they lower. Null if they were not measured. */
export function routingVerdict({ one, other }: CommonEvaluation, loss: LossDifference | null): string | null {
  const pairs = factPairs(one.faithfulness, other.faithfulness);
  const pair = ["Strict routing share", "Routing share"]
    .map((name) => pairs.find((each) => each.name === name))
    .find(Boolean);
  if (pair === undefined) return null;
  const text = (fact: Fact) => `${formatFact(fact.value, fact.unit)} (${formatInterval(fact)})`;
  const isFirst = (pair.one.value ?? 0) < (pair.other.value ?? 0);
  const [lower, higher] = isFirst ? [pair.one, pair.other] : [pair.other, pair.one];
  const isApart = (lower.high ?? 0) < (higher.low ?? 0);
  const shares = `${pair.name} ${text(pair.one)} against ${text(pair.other)}.`;
  if ((higher.low ?? 0) > 1) return `${shares}${ABOVE_ALL}`;
  const consequence = isApart
    ? routingConsequence(isFirst ? one.run : other.run, advantageOf(isFirst, loss))
    : " The intervals overlap, so the losses are comparable.";
  return shares + consequence;
}

type Indexed = Pick<RunDetail, "index_text"> & {
  readonly run: Pick<RunDetail["run"], "name" | "num_experts" | "active_experts" | "indexed_tokens">;
};

/** Shares of experts that no indexed token activates; null without both indexes. */
export function deadVerdict(one: Indexed, other: Indexed): string | null {
  const texts = [one, other].flatMap(({ run, index_text: text }) => {
    const { name, num_experts: count, active_experts: active, indexed_tokens: tokens } = run;
    if (active === null || tokens === null || text === null) return [];
    const share = formatFact(1 - active / count, "share");
    return [
      { share: `${share} of the experts of ${name}`, index: `${formatCount(tokens)} tokens of ${shortSource(text)}` },
    ];
  });
  const [first, second] = texts;
  if (first === undefined || second === undefined) return null;
  if (one.run.indexed_tokens === other.run.indexed_tokens && one.index_text === other.index_text)
    return `${first.share} and ${second.share} are active on none of the same ${first.index}.`;
  return `Not comparable, as the share depends on the index: ${first.share} are active on none of ${first.index}, ${second.share} on none of ${second.index}.`;
}
