/** Metrics of an evaluation: their format and their definitions. */

import type { Fact } from "@/api/types";
import type { TermId } from "@/lib/text/glossary";

/** Group of the continuations, one row per length. */
export const CONTINUATIONS = "Same greedy continuation";

/** A formatted value; a dash if there is none. */
export function formatFact(value: number | null | undefined, unit: Fact["unit"]): string {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return `${(100 * value).toFixed(1)} %`;
  if (unit === "count") return value.toLocaleString("en", { maximumFractionDigits: 1 });
  if (value === 0) return "0";
  return Math.abs(value) < 0.001 ? value.toExponential(1).replaceAll("-", "−") : value.toFixed(4).replace("-", "−");
}

/** The interval, with the unit behind its upper end; empty if there is none or if both ends read the same. */
export function formatInterval({ low, high, unit }: Fact): string {
  const [from, to] = [formatFact(low, unit), formatFact(high, unit)];
  return low == null || from === to ? "" : `${from.replace(" %", "")} to ${to}`;
}

/** Definitions in the glossary of the metrics that have one; the others are described by the server. */
const TERMS: Readonly<Record<string, TermId>> = {
  "Loss increase": "loss_increase_of_run",
  "Loss increase, MLP zero-ablated": "ablation",
  "Loss increase, MLP mean-ablated": "ablation",
  "Loss, original": "nats",
  "Loss recovered vs zero ablation": "loss_recovered",
  "Loss recovered vs mean ablation": "loss_recovered",
  "Routing share": "routing_share",
  "Strict routing share": "strict_routing_share",
  "Decoder share": "decoder_share",
  L0: "l0",
  "KL divergence": "kl",
  "Top-1 agreement": "top1_agreement",
  "Variance explained": "variance_explained",
  "Normalised MSE": "normalised_mse",
  "Jacobian agreement": "jacobian_agreement",
  "Highest density": "density",
  "Share of output norm": "output_norm",
  "Stable rank": "stable_rank",
};

/** The metric's entry in the glossary. */
export function factTerm({ name, group }: Fact): TermId | undefined {
  return TERMS[name] ?? (group === CONTINUATIONS ? "continuations" : undefined);
}
