/** Controls of the graph: pruning, edge threshold, size, error nodes and zoom. */

import type { ReactNode } from "react";

import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { Slider } from "@/components/ui/slider";
import type { SetParams, Values } from "@/hooks/use-url-state";

import type { CIRCUIT_PARAMS } from "./circuit-params";
import { type ShownGraph, shownIndices } from "./graph/shown-graph";

const ZOOM_STEPS = [50, 75, 100, 125, 150, 200];
const ACTUAL_SIZE = 100;

const smaller = (zoom: number | null) => ZOOM_STEPS.findLast((step) => step < (zoom ?? ACTUAL_SIZE));
const larger = (zoom: number | null) => ZOOM_STEPS.find((step) => step > (zoom ?? ACTUAL_SIZE));

interface ToolbarProps {
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
  /** For a share of 100 %. */
  readonly all: string;
  readonly onChange: (value: number) => void;
}

function ShareSlider({ label, count, value, title, all, onChange }: ShareSliderProps) {
  return (
    <div className="share-slider" title={title}>
      <span>
        {label} <output className="num">{count}</output>{" "}
        <span className="dim">
          {value >= 100 ? all : `${Math.round(value)}\u00a0%`}
          {value < 100 && <span className="sr"> of the influence</span>}
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
  return (
    <div className="zoom" role="group" aria-label="Zoom">
      <Button
        size="small"
        aria-label="Zoom out"
        disabled={smaller(params.zoom) === undefined}
        onClick={() => setParams(({ zoom }) => ({ zoom: smaller(zoom) ?? zoom }))}
      >
        −
      </Button>
      <Button
        size="small"
        aria-label="Zoom in"
        disabled={larger(params.zoom) === undefined}
        onClick={() => setParams(({ zoom }) => ({ zoom: larger(zoom) ?? zoom }))}
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

export function Toolbar({ shown, params, setParams, isTraced, children }: ToolbarProps) {
  return (
    <div className="circuit-toolbar">
      <ShareSlider
        label="Nodes"
        count={shownIndices(shown).length}
        value={params.prune}
        title="Keep the most influential nodes that together hold this share of the graph’s influence. Pinned nodes stay."
        all={params.subgraph === "pinned" ? "pinned" : params.edges < 100 ? "with edges" : "all kept"}
        onChange={(prune) => setParams({ prune })}
      />
      <ShareSlider
        label="Edges"
        count={shown.edges.length}
        value={params.edges}
        title="Keep the strongest edges that together hold this share of the influence between the shown nodes. Nodes without an edge are hidden, unless pinned."
        all="all"
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
      <span className="graph-actions">
        {children}
        <Zoom params={params} setParams={setParams} />
      </span>
    </div>
  );
}
