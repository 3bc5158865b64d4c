/** Sentences on an evaluation: how faithful the run is, and whether that depends on its routing. */

import type { Fact } from "@/api/types";

import { formatFact } from "@/components/runs/facts-table";

function withInterval({ value, low, high, unit }: Fact): string {
  const range = low == null ? "" : ` (95 % interval ${formatFact(low, unit)} to ${formatFact(high, unit)})`;
  return `${formatFact(value, unit)}${unit === "nats" ? " nats per token" : ""}${range}`;
}

const named = (facts: readonly Fact[], name: string) => facts.find((fact) => fact.name === name);

/** How much of what the MLP contributes the run keeps; empty if it was not measured. */
export function faithfulnessVerdict(run: string, facts: readonly Fact[]): string {
  const kept = named(facts, "Loss recovered vs zero ablation");
  const added = named(facts, "Loss increase");
  if (kept === undefined || added === undefined) return "";
  return `With ${run} in place of the MLP, the loss rises by ${withInterval(added)}. It recovers ${withInterval(kept)} of the loss that zero-ablating the MLP adds.`;
}

/** Below this share, most of the layer's effect does not depend on its experts. */
const LOW_ROUTING_SHARE = 0.5;

/** Whether the effect comes from the choice of experts; empty if it was not measured. */
export function routingVerdict(facts: readonly Fact[]): string {
  const share = named(facts, "Routing share");
  if (share?.value == null) return "";
  const meaning =
    share.value < LOW_ROUTING_SHARE
      ? "most of the layer’s effect does not depend on which experts are active"
      : "the layer’s effect depends on which experts are active";
  return `Routing share ${withInterval(share)}: ${meaning}.`;
}
