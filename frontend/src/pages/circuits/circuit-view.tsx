/** One circuit with all around it: the graph, its table, what is chosen. */

import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";

import { type CircuitAsked, circuitEffectsQuery } from "@/api/circuits";
import type { CircuitEffectsResponse, CircuitNode, CircuitResponse } from "@/api/types";
import { Button } from "@/components/button";
import { NumberInput } from "@/components/number-input";
import { Segmented } from "@/components/segmented";
import { useShortcut } from "@/components/shortcuts";
import { formatCount, formatFixed, formatPercent } from "@/lib/format";
import type { SetParams, Values } from "@/url-state";

import { type ChosenExpert, type CIRCUIT_PARAMS, chosenKey } from "./circuit-params";
import { GraphView } from "./graph-view";
import { EdgeTable, type Measured, NodeTable } from "./node-table";
import { chosenNodes, expertOf } from "./node-words";
import { MadeOf, NodePane, TargetPane } from "./side-panel";
import { SwitchOff } from "./switch-off";
import { MOST_GROUPS, switches } from "./switches";

interface CircuitViewProps {
  readonly response: CircuitResponse;
  readonly asked: CircuitAsked;
  readonly params: Values<typeof CIRCUIT_PARAMS>;
  readonly setParams: SetParams<typeof CIRCUIT_PARAMS>;
}

function measuredBy(experts: readonly CircuitNode[], data: CircuitEffectsResponse | undefined): Measured {
  return new Map(
    (data?.effects ?? []).flatMap((effect, i) => {
      const node = experts[i];
      const expert = node === undefined ? null : expertOf(node);
      return expert === null ? [] : [[chosenKey(expert), effect] as const];
    }),
  );
}

/** Every kept expert switched off by itself, once that is asked for. */
function useCheck(response: CircuitResponse, asked: CircuitAsked) {
  const [wanted, setWanted] = useState<CircuitResponse | null>(null);
  const experts = useMemo(
    () => response.graph.nodes.filter(({ kind }) => kind === "expert").slice(0, MOST_GROUPS),
    [response],
  );
  const groups = wanted === response ? switches(experts).map((one) => [one]) : [];
  const { data, isFetching, error } = useQuery(
    circuitEffectsQuery({ ...asked, target: response.graph.target.id }, groups),
  );
  const found = wanted === response ? data : undefined;
  const measured = useMemo(() => measuredBy(experts, found), [experts, found]);
  return { experts, measured, found, isFetching, error, start: () => setWanted(response) };
}

function Agreement({ found }: { readonly found: CircuitEffectsResponse }) {
  const { correlation, same_sign } = found.agreement;
  return (
    <span className="note" role="status">
      {found.effects.length} experts off one by one: predicted and measured correlate{" "}
      {correlation == null ? "–" : formatFixed(correlation, 2)}, same sign{" "}
      {same_sign == null ? "–" : formatPercent(same_sign, 0)} %
    </span>
  );
}

function Tables(props: CircuitViewProps & { readonly onToggle: (expert: ChosenExpert) => void }) {
  const { response, asked, params, setParams, onToggle } = props;
  const check = useCheck(response, asked);
  return (
    <section className="circuit-list" aria-label="The circuit as a table">
      <div className="pane-h">
        <Segmented
          label="Table of"
          value={params.list}
          onChange={(list) => setParams({ list })}
          segments={[
            { value: "nodes", label: "Nodes" },
            { value: "edges", label: "Edges" },
          ]}
        />
        {check.experts.length > 0 && (
          <Button
            size="small"
            disabled={check.isFetching}
            title="Switch every expert of the graph off by itself, and compare"
            onClick={check.start}
          >
            Check the graph
          </Button>
        )}
        {check.found !== undefined && <Agreement found={check.found} />}
        {check.error !== null && <span className="note">{check.error.message}</span>}
      </div>
      {params.list === "nodes" ? (
        <NodeTable response={response} chosen={params.chosen} measured={check.measured} onToggle={onToggle} />
      ) : (
        <EdgeTable response={response} />
      )}
    </section>
  );
}

function Foot({ response, params, setParams }: Omit<CircuitViewProps, "asked">) {
  const { graph } = response;
  return (
    <div className="circuit-foot">
      <span className="key">
        <svg width="34" height="8" aria-hidden="true" className="circuit-edges">
          <path className="up" d="M1 4H33" strokeWidth="2" />
        </svg>
        + raises
      </span>
      <span className="key">
        <svg width="34" height="8" aria-hidden="true" className="circuit-edges">
          <path className="down" d="M1 4H33" strokeWidth="2" />
        </svg>
        − lowers
      </span>
      <span className="dim">
        {graph.nodes.length - 1} of {formatCount(graph.num_nodes)} nodes hold {formatPercent(graph.kept_influence, 0)} %
        of the influence, {graph.edges.length} edges {formatPercent(graph.kept_edges, 0)} % of that between them.
      </span>
      <span className="grow" />
      <label className="usage-filter">
        Nodes at most{" "}
        <NumberInput
          label="Nodes at most"
          value={params.nodes}
          digits={0}
          min={2}
          max={300}
          onCommit={(nodes) => setParams({ nodes: Math.round(nodes) })}
        />
      </label>
      <Segmented
        label="What layers miss"
        value={params.errors}
        onChange={(errors) => setParams({ errors, chosen: [] }, "push")}
        segments={[
          { value: "kept", label: "Errors kept" },
          { value: "dropped", label: "Dropped" },
        ]}
      />
    </div>
  );
}

export function CircuitView(props: CircuitViewProps) {
  const { response, asked, params, setParams } = props;
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
      <aside className="circuit-panel" aria-label="About the circuit">
        <TargetPane response={response} params={params} setParams={setParams} />
        <SwitchOff response={response} asked={asked} nodes={chosenNodes(response.graph, chosen)} onClear={clear} />
        <MadeOf response={response} />
        <NodePane response={response} index={preview.response === response ? preview.index : 0} />
      </aside>
    </div>
  );
}
