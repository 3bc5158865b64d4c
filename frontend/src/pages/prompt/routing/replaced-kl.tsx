/** How far the spliced layers move the next-token distributions of this text, beside removing the MLPs. */

import { Term } from "@/components/terms/term";

import { type Column, meanKl, type Predicted } from "./heat-map/heat-rows";

interface ReplacedKlProps {
  /** What replaces the MLP, as the subject of the sentence. */
  readonly subject: string;
  readonly layers?: number;
  readonly columns: readonly Column[];
  readonly predicted: Predicted;
}

export function ReplacedKl({ subject, layers = 1, columns, predicted }: ReplacedKlProps) {
  return (
    <span className="dim" aria-busy={predicted === undefined}>
      {subject}: mean <Term id="kl">KL</Term> from the original model {meanKl(columns, predicted, "kl")} nats over{" "}
      {columns.length} {columns.length === 1 ? "token" : "tokens"}, {meanKl(columns, predicted, "zeroed_kl")} with{" "}
      {layers === 1 ? "the MLP" : `all ${layers} MLPs`} removed.
    </span>
  );
}
