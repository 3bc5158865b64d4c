/** Below the tables: what the layers cost, and which tokens and experts are shown. */

import { Term } from "@/components/terms/term";
import { NumberInput } from "@/components/ui/number-input";

import { type Column, meanKl, type Predicted } from "./heat-map/heat-rows";
import type { RoutingState } from "./routing-params";

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

/** Which tokens and experts are shown. */
export function Filters({ params: { start, density }, setParams }: RoutingState) {
  return (
    <>
      <label className="filter">
        <input type="checkbox" checked={start} onChange={() => setParams({ start: !start })} />
        Start token
      </label>
      <label className="filter">
        Density at most{" "}
        <NumberInput
          label="Density at most"
          value={density}
          digits={density === 100 ? 0 : 1}
          min={0}
          max={100}
          unit="%"
          onCommit={(next) => setParams({ density: next })}
        />
      </label>
    </>
  );
}
