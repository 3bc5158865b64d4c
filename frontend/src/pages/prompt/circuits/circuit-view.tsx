/** One circuit: graph, tables and side panel. */

import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";

import { type CircuitRequest, circuitEffectsQuery } from "@/api/circuits";
import type { CircuitEffectsResponse, CircuitNode, CircuitResponse } from "@/api/types";
import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { useShortcut } from "@/hooks/use-shortcut";
import type { SetParams, Values } from "@/hooks/use-url-state";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";

import { type ChosenExpert, type CIRCUIT_PARAMS, chosenKey } from "./circuit-params";
import { GraphView } from "./graph/graph-view";
import { chosenNodes, nodeExpert } from "./graph/node-labels";
import { EdgeTable, type MeasuredEffects, NodeTable } from "./graph/node-table";
import { MAX_GROUPS, ablatedExperts } from "./panel/ablation-groups";
import { AblationPanel } from "./panel/ablation-panel";
import { LogitAttribution, NodePane, TargetPane } from "./panel/side-panel";

interface CircuitViewProps {
  readonly response: CircuitResponse;
  readonly request: CircuitRequest;
  readonly params: Values<typeof CIRCUIT_PARAMS>;
  readonly setParams: SetParams<typeof CIRCUIT_PARAMS>;
}

function effectsByExpert(experts: readonly CircuitNode[], data: CircuitEffectsResponse | undefined): MeasuredEffects {
  return new Map(
    (data?.effects ?? []).flatMap((effect, i) => {
      const node = experts[i];
      const expert = node === undefined ? null : nodeExpert(node);
      return expert === null ? [] : [[chosenKey(expert), effect] as const];
    }),
  );
}

/** On request, ablates each of the graph's experts separately. */
function useVerification(response: CircuitResponse, request: CircuitRequest) {
  const [verified, setVerified] = useState<CircuitResponse | null>(null);
  const experts = useMemo(
    () => response.graph.nodes.filter(({ kind }) => kind === "expert").slice(0, MAX_GROUPS),
    [response],
  );
  const groups = verified === response ? ablatedExperts(experts).map((one) => [one]) : [];
  const { data, isFetching, error } = useQuery(
    circuitEffectsQuery({ ...request, target: response.graph.target.id }, groups),
  );
  const effects = verified === response ? data : undefined;
  const measured = useMemo(() => effectsByExpert(experts, effects), [experts, effects]);
  return { experts, measured, effects, isFetching, error, start: () => setVerified(response) };
}

function Agreement({ response }: { readonly response: CircuitEffectsResponse }) {
  const { correlation, same_sign } = response.agreement;
  return (
    <span className="note" role="status">
      {response.effects.length} experts ablated one at a time: predicted and measured changes correlate with r ={" "}
      {correlation == null ? "–" : formatFixed(correlation, 2)}, the sign agrees in{" "}
      {same_sign == null ? "–" : formatPercent(same_sign, 0)} %
    </span>
  );
}

function Tables(props: CircuitViewProps & { readonly onToggle: (expert: ChosenExpert) => void }) {
  const { response, request, params, setParams, onToggle } = props;
  const verification = useVerification(response, request);
  return (
    <section className="circuit-list" aria-label="Circuit as table">
      <div className="pane-h">
        <SegmentedControl
          label="Table"
          value={params.table}
          onChange={(list) => setParams({ table: list })}
          segments={[
            { value: "nodes", label: "Nodes" },
            { value: "edges", label: "Edges" },
          ]}
        />
        {verification.experts.length > 0 && (
          <Button
            size="small"
            disabled={verification.isFetching}
            title="Ablate each expert of the graph separately and compare with the prediction"
            onClick={verification.start}
          >
            Verify graph
          </Button>
        )}
        {verification.effects !== undefined && <Agreement response={verification.effects} />}
        {verification.error !== null && <span className="note">{verification.error.message}</span>}
      </div>
      {params.table === "nodes" ? (
        <NodeTable response={response} chosen={params.chosen} measured={verification.measured} onToggle={onToggle} />
      ) : (
        <EdgeTable response={response} />
      )}
    </section>
  );
}

function Foot({ response, params, setParams }: Omit<CircuitViewProps, "request">) {
  const { graph } = response;
  return (
    <div className="circuit-foot">
      <span className="key">
        <svg width="34" height="8" aria-hidden="true" className="circuit-edges">
          <path className="up" d="M1 4H33" strokeWidth="2" />
        </svg>
        + increases
      </span>
      <span className="key">
        <svg width="34" height="8" aria-hidden="true" className="circuit-edges">
          <path className="down" d="M1 4H33" strokeWidth="2" />
        </svg>
        − decreases
      </span>
      <span className="dim">
        {graph.nodes.length - 1} of {formatCount(graph.num_nodes)} nodes carry{" "}
        {formatPercent(graph.retained_influence, 0)} % of the influence; {graph.edges.length} edges{" "}
        {formatPercent(graph.retained_edge_influence, 0)} % of the influence between them.
      </span>
      <span className="grow" />
      <label className="density-filter">
        Max nodes{" "}
        <NumberInput
          label="Max nodes"
          value={params.nodes}
          digits={0}
          min={2}
          max={300}
          onCommit={(nodes) => setParams({ nodes: Math.round(nodes) })}
        />
      </label>
      <SegmentedControl
        label="Error nodes"
        value={params.errors}
        onChange={(errors) => setParams({ errors, chosen: [] }, "push")}
        segments={[
          { value: "kept", label: "Include error nodes" },
          { value: "dropped", label: "Exclude" },
        ]}
      />
    </div>
  );
}

export function CircuitView(props: CircuitViewProps) {
  const { response, request, params, setParams } = props;
  const { chosen } = params;
  const [preview, setPreview] = useState({ response, index: 0 });
  const onPreview = useCallback((index: number) => setPreview({ response, index }), [response]);
  const toggle = (expert: ChosenExpert) => {
    const key = chosenKey(expert);
    const without = chosen.filter((one) => chosenKey(one) !== key);
    setParams({ chosen: without.length === chosen.length ? [...chosen, expert] : without });
  };
  const clear = () => setParams({ chosen: [] });
  useShortcut("release", clear, chosen.length > 0);
  return (
    <div className="prompted-columns">
      <div className="prompted-main">
        <GraphView response={response} chosen={chosen} onToggle={toggle} onPreview={onPreview} />
        <Foot response={response} params={params} setParams={setParams} />
        <Tables {...props} onToggle={toggle} />
      </div>
      <aside className="circuit-panel" aria-label="Circuit details">
        <TargetPane response={response} params={params} setParams={setParams} />
        <AblationPanel
          response={response}
          request={request}
          nodes={chosenNodes(response.graph, chosen)}
          onClear={clear}
        />
        <LogitAttribution response={response} />
        <NodePane response={response} index={preview.response === response ? preview.index : 0} />
      </aside>
    </div>
  );
}
