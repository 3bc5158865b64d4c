/** Buttons that add other layers of the same model. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { routingOptionsQuery } from "@/api/queries";
import type { LayerRun, RunSummary } from "@/api/types";
import { pickLayerRuns } from "@/components/runs/pick-layer-runs";
import { layerLabel, methodName } from "@/components/runs/run-labels";
import { Button } from "@/components/ui/button";

/** The selected layers that exist. */
export function useLayers(run: RunSummary, chosen: readonly string[]): readonly LayerRun[] {
  const { data } = useQuery(routingOptionsQuery(run.name));
  return useMemo(() => data?.layers.filter((layer) => chosen.includes(layer.name)) ?? [], [data, chosen]);
}

interface LayerButtonsProps {
  readonly run: RunSummary;
  readonly chosen: readonly string[];
  readonly onChoose: (runs: readonly string[]) => void;
  readonly caption?: string;
}

/** Buttons that add other layers to the map; nothing if there are none. */
export function LayerButtons({ run, chosen, onChoose, caption = "Also replace:" }: LayerButtonsProps) {
  const { data } = useQuery(routingOptionsQuery(run.name));
  if (data === undefined || data.layers.length === 0) return null;
  const toggle = (layer: LayerRun) => {
    const sameLayer = data.layers.filter((other) => other.layer === layer.layer).map((other) => other.name);
    const without = chosen.filter((name) => !sameLayer.includes(name));
    onChoose(chosen.includes(layer.name) ? without : [...without, layer.name]);
  };
  const allLayers = pickLayerRuns(run, data.layers);
  const isAllLayers = allLayers.length === chosen.length && allLayers.every((name) => chosen.includes(name));
  return (
    <span role="group" aria-label="Other layers" className="layers">
      <span className="dim">{caption}</span>
      {data.layers.map((layer) => (
        <Button
          key={layer.name}
          size="small"
          variant={chosen.includes(layer.name) ? "chosen" : "plain"}
          aria-pressed={chosen.includes(layer.name)}
          title={`${layer.name}, ${methodName(layer.method)} of layer ${layer.layer}`}
          onClick={() => toggle(layer)}
        >
          Layer {layerLabel(layer, data.layers)}
        </Button>
      ))}
      {allLayers.length > 1 && (
        <Button
          size="small"
          variant={isAllLayers ? "chosen" : "plain"}
          aria-pressed={isAllLayers}
          title="Route through one run of every trained layer"
          onClick={() => onChoose(isAllLayers ? [] : allLayers)}
        >
          All layers
        </Button>
      )}
    </span>
  );
}
