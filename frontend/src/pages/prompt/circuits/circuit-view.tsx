/** One circuit: verdict, graph, side panel and tables. */

import { useMemo } from "react";

import { circuitFile, type CircuitRequest } from "@/api/circuits";
import type { CircuitResponse } from "@/api/types";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { useShortcut } from "@/hooks/use-shortcut";
import type { SetParams, Values } from "@/hooks/use-url-state";

import { type Check, useCheck } from "./check/use-check";
import { checkLayers, isWeak } from "./check/measured";
import { VerdictLine } from "./check/verdict-line";
import { type CIRCUIT_PARAMS, toggled } from "./circuit-params";
import { SaveGraph } from "./file/file-buttons";
import { measuredInFile, type OpenedGraph, withMarks } from "./file/graph-file";
import { Coverage, NoExperts } from "./graph/coverage";
import { GraphView } from "./graph/graph-view";
import { Legend } from "./graph/legend";
import { EdgeTable, NodeTable } from "./graph/node-table";
import { shownGraph } from "./graph/shown-graph";
import { AblationPanel } from "./panel/ablation-panel";
import { AttentionPanel } from "./panel/attention-panel";
import { PinsPane } from "./panel/pins-pane";
import { LogitAttribution, NodePane, TargetPane } from "./panel/side-panel";
import { Toolbar } from "./toolbar";

interface ViewProps {
  readonly params: Values<typeof CIRCUIT_PARAMS>;
  readonly setParams: SetParams<typeof CIRCUIT_PARAMS>;
}

interface CircuitViewProps extends ViewProps {
  readonly response: CircuitResponse;
  readonly check: Check;
  /** Null for a graph from a file, and while the response belongs to an earlier request. */
  readonly request: CircuitRequest | null;
  readonly opened: OpenedGraph | null;
}

function Tables({ response, check, params, setParams, opened }: CircuitViewProps) {
  const ablated = useMemo(() => new Set(params.ablated), [params.ablated]);
  const onAblate = (id: string) => setParams((current) => ({ ablated: toggled(current.ablated, [id]) }));
  return (
    <section className="circuit-list" aria-label="Circuit as table">
      <div className="pane-h">
        <SegmentedControl
          label="Table"
          value={params.table}
          onChange={(table) => setParams({ table })}
          segments={[
            { value: "nodes", label: "Nodes" },
            { value: "edges", label: "Edges" },
          ]}
        />
      </div>
      {params.table === "nodes" ? (
        <NodeTable
          response={response}
          ablated={ablated}
          measured={check.measured}
          onAblate={opened === null ? onAblate : null}
        />
      ) : (
        <EdgeTable response={response} />
      )}
    </section>
  );
}

/** The part of the graph that the parameters show. */
function useShown(response: CircuitResponse, params: ViewProps["params"]) {
  const { prune, edges, subgraph, pinned, groups } = params;
  return useMemo(
    () => shownGraph(response, { prune: prune / 100, edges: edges / 100, subgraph, pinned, groups }),
    [response, prune, edges, subgraph, pinned, groups],
  );
}

function CircuitView(props: CircuitViewProps) {
  const { response, check, request, opened, params, setParams } = props;
  const shown = useShown(response, params);
  const isWhole = opened?.response.whole ?? true;
  const weak = useMemo(
    () => new Set(checkLayers(response, check.measured).flatMap((layer) => (isWeak(layer) ? [layer.layer] : []))),
    [response, check.measured],
  );
  const selected = shown.nodes.find(({ id }) => id === params.node) ?? shown.nodes[0];
  useShortcut("release", () => setParams({ ablated: [] }), params.ablated.length > 0);
  const toFile = async () => {
    const file = request === null ? opened?.file : await circuitFile(request, Math.round(params.nodes));
    return withMarks(file ?? {}, params, check.measured);
  };
  return (
    <div className="circuit-columns" aria-busy={opened === null && request === null}>
      <section className="circuit-main" aria-label="Graph">
        <VerdictLine response={response} check={check} isFromFile={opened !== null} />
        <Toolbar shown={shown} params={params} setParams={setParams} isTraced={opened === null}>
          <SaveGraph toFile={toFile} isReady={!check.isMeasuring && (opened !== null || request !== null)} />
        </Toolbar>
        <NoExperts response={response} shown={shown} />
        <GraphView
          response={response}
          shown={shown}
          selected={selected?.id ?? null}
          ablated={new Set(params.ablated)}
          pinned={new Set(params.pinned)}
          weak={weak}
          measured={check.measured}
          zoom={params.zoom === null ? null : params.zoom / 100}
          onSelect={(node) => setParams({ node })}
        />
        <Coverage response={response} shown={shown} isWhole={isWhole} />
        <Legend />
      </section>
      <aside className="circuit-panel" aria-label="Circuit details">
        {selected !== undefined && (
          <NodePane {...props} shown={selected} measured={check.measured} canAblate={opened === null} />
        )}
        <AttentionPanel key={selected?.id} response={response} request={request} shown={selected} />
        {opened === null && (
          <AblationPanel
            response={response}
            request={request}
            ablated={params.ablated}
            onChange={(ablated) => setParams({ ablated })}
          />
        )}
        <PinsPane response={response} params={params} setParams={setParams} />
        {opened === null && <TargetPane response={response} params={params} setParams={setParams} />}
        <LogitAttribution response={response} isWhole={isWhole} />
      </aside>
      <Tables {...props} />
    </div>
  );
}

interface TracedCircuitProps extends ViewProps {
  readonly response: CircuitResponse;
  readonly request: CircuitRequest | null;
}

/** A graph that was traced here, and is checked by ablation. */
export function TracedCircuit({ response, request, ...view }: TracedCircuitProps) {
  const check = useCheck(response, request);
  return <CircuitView {...view} response={response} request={request} check={check} opened={null} />;
}

/** A graph from a file, with the effects that it holds. */
export function OpenedCircuit({ opened, ...view }: ViewProps & { readonly opened: OpenedGraph }) {
  const { response } = opened;
  const measured = useMemo(() => measuredInFile(response), [response]);
  const check = { measured, agreement: response.agreement, isMeasuring: false, error: null };
  return <CircuitView {...view} response={response} request={null} check={check} opened={opened} />;
}
