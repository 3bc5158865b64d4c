/** Which tokens and experts the routing shows. */

import { NumberInput } from "@/components/ui/number-input";

import type { RoutingState } from "./routing-params";

export function StartToken({ params, setParams }: RoutingState) {
  return (
    <label className="start-token">
      <input type="checkbox" checked={params.start} onChange={() => setParams(({ start }) => ({ start: !start }))} />
      Start token
    </label>
  );
}

export function DensityFilter({ params, setParams }: RoutingState) {
  return (
    <label className="density-filter">
      Density at most{" "}
      <NumberInput
        label="Density at most"
        value={params.density}
        digits={params.density === 100 ? 0 : 1}
        min={0}
        max={100}
        unit="%"
        onCommit={(density) => setParams({ density })}
      />
    </label>
  );
}
