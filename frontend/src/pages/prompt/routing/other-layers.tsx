/** Other layers of the same model below the first map: the same tokens with each layer's experts. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { routingOptionsQuery, predictionsQuery } from "@/api/queries";
import type { LayerRun, RoutingResponse, RunSummary } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { pickLayerRuns } from "@/components/runs/pick-layer-runs";
import { methodName } from "@/components/runs/run-labels";
import { Button } from "@/components/ui/button";
import type { SetParams, Values } from "@/hooks/use-url-state";
import { formatCount } from "@/lib/text/format";

import type { CellPosition } from "./heat-map/heat-events";
import { HeatMap } from "./heat-map/heat-map";
import { heatColumns, heatRows, meanKl, scaleEnd } from "./heat-map/heat-rows";
import type { ROUTING_PARAMS } from "./routing-params";
import { HeatMapRunContext } from "./rows-of-run";
import { NextToken } from "./token/next-token";
import { TokenExperts } from "./token/token-panel";

/** The selected layers that exist. */
export function useLayers(run: RunSummary, chosen: readonly string[]): readonly LayerRun[] {
  const { data } = useQuery(routingOptionsQuery(run.name));
  return useMemo(() => data?.layers.filter((layer) => chosen.includes(layer.name)) ?? [], [data, chosen]);
}

interface LayerButtonsProps {
  readonly run: RunSummary;
  readonly chosen: readonly string[];
  readonly onChoose: (runs: readonly string[]) => void;
}

/** Buttons that add other layers to the map; nothing if there are none. */
export function LayerButtons({ run, chosen, onChoose }: LayerButtonsProps) {
  const { data } = useQuery(routingOptionsQuery(run.name));
  if (data === undefined || data.layers.length === 0) return null;
  const toggle = (layer: LayerRun) => {
    const sameLayer = data.layers.filter((other) => other.layer === layer.layer).map((other) => other.name);
    const without = chosen.filter((name) => !sameLayer.includes(name));
    onChoose(chosen.includes(layer.name) ? without : [...without, layer.name]);
  };
  const allLayers = pickLayerRuns(run, data.layers);
  const isAllLayers = allLayers.length === chosen.length && allLayers.every((name) => chosen.includes(name));
  const isOnlyRun = (layer: LayerRun) => data.layers.filter((other) => other.layer === layer.layer).length === 1;
  return (
    <span role="group" aria-label="Other layers" className="layers">
      {data.layers.map((layer) => (
        <Button
          key={layer.name}
          size="small"
          variant={chosen.includes(layer.name) ? "chosen" : "plain"}
          aria-pressed={chosen.includes(layer.name)}
          title={`${layer.name}, ${methodName(layer.method)} of layer ${layer.layer}`}
          onClick={() => toggle(layer)}
        >
          {isOnlyRun(layer) ? `Layer ${layer.layer}` : layer.name}
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

interface OtherLayerProps {
  readonly response: RoutingResponse;
  readonly params: Values<typeof ROUTING_PARAMS>;
  readonly setParams: SetParams<typeof ROUTING_PARAMS>;
  readonly onPreview: (position: number) => void;
}

export function OtherLayer({ response, params, setParams, onPreview }: OtherLayerProps) {
  const layer = useCurrentRun().runs.find((run) => run.name === response.run)?.layer;
  const columns = useMemo(() => heatColumns(response, params.start), [response, params.start]);
  const rows = useMemo(() => heatRows(columns, response.experts, params.rank), [columns, response, params.rank]);
  const shown = useMemo(() => rows.slice(0, params.rows), [rows, params.rows]);
  const end = useMemo(() => scaleEnd(rows), [rows]);
  const prompt = { text: params.prompt, k: params.k };
  const predicted = useQuery(predictionsQuery(response.run, prompt)).data?.tokens;
  const onLock = ({ position }: CellPosition) => {
    setParams({ lock: params.lock?.position === position ? null : { position, expert: null } });
  };
  return (
    <HeatMapRunContext value={response.run}>
      <section className="other-layer" aria-label={`Layer ${layer ?? ""}, ${response.run}`}>
        <div className="pane-h">
          <h2>Layer {layer}</h2>
          <span className="note">
            {response.run}, {formatCount(shown.length)} of {formatCount(rows.length)} experts, mean KL{" "}
            {meanKl(columns, predicted)} nats
          </span>
        </div>
        <HeatMap
          columns={columns}
          rows={shown}
          extra={[]}
          end={end}
          ranking={params.rank}
          lock={params.lock === null ? null : { position: params.lock.position, expert: null }}
          predicted={predicted}
          onPreview={onPreview}
          onLock={onLock}
        />
      </section>
    </HeatMapRunContext>
  );
}

interface OtherTokenProps {
  readonly response: RoutingResponse;
  readonly position: number;
  readonly params: Values<typeof ROUTING_PARAMS>;
  readonly isLocked: boolean;
}

function OtherToken({ response, position, params, isLocked }: OtherTokenProps) {
  const run = useCurrentRun().runs.find((one) => one.name === response.run);
  const prompt = { text: params.prompt, k: params.k };
  const { data } = useQuery(predictionsQuery(response.run, prompt));
  const token = response.tokens[position];
  if (token === undefined) return null;
  return (
    <>
      <section aria-label={`Token in layer ${run?.layer ?? ""}`}>
        <div className="pane-h">
          <h2>Layer {run?.layer}</h2>
          <span className="note">{response.run}</span>
        </div>
        <TokenExperts
          key={position}
          run={response.run}
          ofRun={response.run}
          text={prompt}
          column={{ position, token }}
          experts={response.experts}
          end={scaleEnd(heatRows(heatColumns(response, false), response.experts, "summed"))}
          isLocked={isLocked}
          lockedExpert={null}
        />
      </section>
      <NextToken token={data?.tokens[position]} method={run === undefined ? "layer" : methodName(run.method)} />
    </>
  );
}

interface OtherTokensProps extends Omit<OtherTokenProps, "response"> {
  readonly others: readonly RoutingResponse[];
}

/** The same token in all other layers. */
export function OtherTokens({ others, ...rest }: OtherTokensProps) {
  return others.map((response) => <OtherToken key={response.run} {...rest} response={response} />);
}
