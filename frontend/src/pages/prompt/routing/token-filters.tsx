/** Which tokens and experts the routing shows. */

import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";

import type { RoutingState } from "./routing-params";

export function StartToken({ params, setParams }: RoutingState) {
  return (
    <Button
      size="small"
      variant={params.start ? "chosen" : "ghost"}
      aria-pressed={params.start}
      onClick={() => setParams(({ start }) => ({ start: !start }))}
    >
      Start token
    </Button>
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
