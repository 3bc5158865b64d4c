/** Other layers of the same language model under the first one's map: the same tokens, each layer's own experts. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { liveQuery, predictionsQuery } from "@/api/queries";
import type { LayerRun, RoutingResponse, RunSummary } from "@/api/types";
import { Button } from "@/components/button";
import { useCurrentRun } from "@/components/current-run";
import { oneOfEachLayer } from "@/components/one-of-each-layer";
import { methodName } from "@/components/run-words";
import { formatCount } from "@/lib/format";
import type { SetParams, Values } from "@/url-state";

import type { Place } from "./heat-events";
import { HeatMap } from "./heat-map";
import { heatColumns, heatRows, meanKl, scaleEnd } from "./heat-rows";
import { NextToken } from "./next-token";
import type { ROUTING_PARAMS } from "./routing-params";
import { RowsOfRun } from "./rows-of-run";
import { TokenExperts } from "./token-panel";

/** The chosen layers that there are. */
export function useLayers(run: RunSummary, chosen: readonly string[]): readonly LayerRun[] {
  const { data } = useQuery(liveQuery(run.name));
  return useMemo(() => data?.layers.filter((layer) => chosen.includes(layer.name)) ?? [], [data, chosen]);
}

interface ChoiceProps {
  readonly run: RunSummary;
  readonly chosen: readonly string[];
  readonly onChoose: (runs: readonly string[]) => void;
}

/** Which layers are shown beside this one; nothing where there are no others. */
export function LayersChoice({ run, chosen, onChoose }: ChoiceProps) {
  const { data } = useQuery(liveQuery(run.name));
  if (data === undefined || data.layers.length === 0) return null;
  const toggle = (layer: LayerRun) => {
    const alike = data.layers.filter((other) => other.layer === layer.layer).map((other) => other.name);
    const without = chosen.filter((name) => !alike.includes(name));
    onChoose(chosen.includes(layer.name) ? without : [...without, layer.name]);
  };
  const whole = oneOfEachLayer(run, data.layers);
  const isWhole = whole.length === chosen.length && whole.every((name) => chosen.includes(name));
  const isAlone = (layer: LayerRun) => data.layers.filter((other) => other.layer === layer.layer).length === 1;
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
          {isAlone(layer) ? `Layer ${layer.layer}` : layer.name}
        </Button>
      ))}
      {whole.length > 1 && (
        <Button
          size="small"
          variant={isWhole ? "chosen" : "plain"}
          aria-pressed={isWhole}
          title="One run of every layer: the text's way through all that is fitted"
          onClick={() => onChoose(isWhole ? [] : whole)}
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
  const asked = { text: params.prompt, k: params.k };
  const predicted = useQuery(predictionsQuery(response.run, asked)).data?.tokens;
  const onLock = ({ position }: Place) => {
    setParams({ lock: params.lock?.position === position ? null : { position, expert: null } });
  };
  return (
    <RowsOfRun value={response.run}>
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
    </RowsOfRun>
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
  const asked = { text: params.prompt, k: params.k };
  const { data } = useQuery(predictionsQuery(response.run, asked));
  const token = response.tokens[position];
  if (token === undefined) return null;
  return (
    <>
      <section aria-label={`The token in layer ${run?.layer ?? ""}`}>
        <div className="pane-h">
          <h2>Layer {run?.layer}</h2>
          <span className="note">{response.run}</span>
        </div>
        <TokenExperts
          key={position}
          run={response.run}
          ofRun={response.run}
          text={asked}
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

/** The same token in every other layer. */
export function OtherTokens({ others, ...rest }: OtherTokensProps) {
  return others.map((response) => <OtherToken key={response.run} {...rest} response={response} />);
}
