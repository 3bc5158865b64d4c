/** Controls of the graph: pruning, edge threshold, size, error nodes, subgraph and zoom. */

import type { ReactNode } from "react";

import type { CircuitResponse } from "@/api/types";
import { Term } from "@/components/terms/term";
import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { Slider } from "@/components/ui/slider";
import type { SetParams, Values } from "@/hooks/use-url-state";
import { formatCount, formatPercent } from "@/lib/text/format";

import { unexplainedShare } from "./check/verdict";
import type { CIRCUIT_PARAMS } from "./circuit-params";
import type { ShownGraph } from "./graph/shown-graph";

const ZOOM_STEPS = [50, 75, 100, 125, 150, 200];

interface ToolbarProps {
  readonly response: CircuitResponse;
  readonly shown: ShownGraph;
  readonly params: Values<typeof CIRCUIT_PARAMS>;
  readonly setParams: SetParams<typeof CIRCUIT_PARAMS>;
  /** False for a graph from a file, which cannot be traced again. */
  readonly isTraced: boolean;
  /** Further actions. */
  readonly children: ReactNode;
}

interface ShareSliderProps {
  readonly label: string;
  readonly count: number;
  readonly value: number;
  readonly title: string;
  readonly onChange: (value: number) => void;
}

function ShareSlider({ label, count, value, title, onChange }: ShareSliderProps) {
  return (
    <div className="share-slider" title={title}>
      <span>
        {label} <output className="num">{count}</output>{" "}
        <span className="dim">
          {value >= 100 ? "all" : `${Math.round(value)} %`}
          <span className="sr"> of the influence</span>
        </span>
      </span>
      <Slider
        label={`${label}, share of the influence`}
        value={value}
        min={10}
        max={100}
        step={1}
        neutral={100}
        ticks={[]}
        onChange={onChange}
      />
    </div>
  );
}

function Zoom({ params, setParams }: Pick<ToolbarProps, "params" | "setParams">) {
  const zoom = params.zoom ?? 100;
  const smaller = ZOOM_STEPS.findLast((step) => step < zoom);
  const larger = ZOOM_STEPS.find((step) => step > zoom);
  return (
    <div className="zoom" role="group" aria-label="Zoom">
      <Button
        size="small"
        aria-label="Zoom out"
        disabled={smaller === undefined}
        onClick={() => setParams({ zoom: smaller ?? zoom })}
      >
        −
      </Button>
      <Button
        size="small"
        aria-label="Zoom in"
        disabled={larger === undefined}
        onClick={() => setParams({ zoom: larger ?? zoom })}
      >
        +
      </Button>
      <Button
        size="small"
        variant={params.zoom === null ? "chosen" : "plain"}
        aria-pressed={params.zoom === null}
        onClick={() => setParams({ zoom: null })}
      >
        Fit
      </Button>
    </div>
  );
}

/** Edges between experts are what makes a graph more than a list of contributions. */
function expertEdges({ nodes, edges }: ShownGraph): string {
  const isExpert = (index: number) => nodes[index]?.node.kind === "expert";
  const joined = edges.filter(({ source, target }) => isExpert(source) && isExpert(target)).length;
  const number = joined === 0 ? "None" : formatCount(joined);
  return `${number} of the ${formatCount(edges.length)} shown edges ${joined > 1 ? "join" : "joins"} two experts.`;
}

/** Which part of all influence is drawn, and which part begins where no expert explains it: two different shares. */
function Coverage({ response, shown }: Pick<ToolbarProps, "response" | "shown">) {
  const { nodes, num_nodes, retained_influence, origins } = response.graph;
  const outside = unexplainedShare(origins);
  return (
    <p className="dim">
      The <Term id="circuit">circuit</Term> draws {nodes.length - 1} of {formatCount(num_nodes)} nodes. They carry{" "}
      {formatPercent(retained_influence, 0)} % of the summed <Term id="influence">influence</Term> of all nodes, MLPs
      and error nodes included.{" "}
      {outside !== null && (
        <>
          “Unexplained” counts all paths, drawn or not: {formatPercent(outside, 0)} % of their influence begins in an
          MLP without a run or in an <Term id="error_node">error node</Term>.{" "}
        </>
      )}
      {expertEdges(shown)}
    </p>
  );
}

export function Toolbar({ response, shown, params, setParams, isTraced, children }: ToolbarProps) {
  return (
    <div className="circuit-toolbar">
      <ShareSlider
        label="Nodes"
        count={shown.nodes.flatMap(({ members }) => members).length - 1}
        value={params.prune}
        title="Keep the most influential nodes that together hold this share of the graph’s influence. Pinned nodes stay."
        onChange={(prune) => setParams({ prune })}
      />
      <ShareSlider
        label="Edges"
        count={shown.edges.length}
        value={params.edges}
        title="Keep the strongest edges that together hold this share of the influence between the shown nodes"
        onChange={(edges) => setParams({ edges })}
      />
      {isTraced && (
        <>
          <label className="density-filter" title="Nodes that the server traces and keeps, most influential first">
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
            onChange={(errors) => setParams({ errors, ablated: [] }, "push")}
            segments={[
              { value: "kept", label: "With error nodes" },
              { value: "dropped", label: "Without" },
            ]}
          />
        </>
      )}
      <span className="grow" />
      <span className="graph-actions">
        {children}
        <Zoom params={params} setParams={setParams} />
      </span>
      <Coverage response={response} shown={shown} />
    </div>
  );
}
