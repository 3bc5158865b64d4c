/** Of Tokens and Layers: the predictions with the layers, what the layers cost, and which experts are shown. */

import { useQuery } from "@tanstack/react-query";

import { predictionsQuery, type Prompt } from "@/api/queries";
import type { RunRouting } from "@/api/types";
import { Term } from "@/components/terms/term";
import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { formatCount } from "@/lib/text/format";

import { type Column, meanKl, type Predicted } from "./heat-map/heat-rows";
import { MORE_ROWS, type RoutingState } from "./routing-params";

/** Next-token distributions with these runs; undefined while loading or while they belong to another text. */
export function usePredictions([first, ...others]: readonly RunRouting[], prompt: Prompt): Predicted {
  const { data } = useQuery(
    predictionsQuery(
      first?.run ?? "",
      prompt,
      others.map(({ run }) => run),
    ),
  );
  return data?.tokens.length === first?.tokens.length ? data?.tokens : undefined;
}

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
      {subject}: mean <Term id="kl">KL</Term> {meanKl(columns, predicted, "kl")} nats,{" "}
      {meanKl(columns, predicted, "zeroed_kl")} with {layers === 1 ? "the MLP" : "the MLPs"} zero‑ablated
    </span>
  );
}

/** Shows more rows, if some are hidden. */
export function MoreRows({ hidden, setParams }: Pick<RoutingState, "setParams"> & { readonly hidden: number }) {
  if (hidden <= 0) return null;
  return (
    <Button size="small" onClick={() => setParams(({ rows }) => ({ rows: rows + MORE_ROWS }))}>
      {formatCount(hidden)} more experts
    </Button>
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
