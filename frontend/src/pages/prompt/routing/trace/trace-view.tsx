/** A text through several layers at once: all tokens in a table, and the path of one token below it. */

import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";

import { circuitEffectsQuery } from "@/api/circuits";
import { messageOf } from "@/api/http/errors";
import { predictionsQuery } from "@/api/queries";
import type { RunRouting, RunSummary } from "@/api/types";
import { useShare } from "@/components/layout/share";
import { useCurrentRun } from "@/components/runs/current-run";
import { effectiveK, KSlider } from "@/components/runs/k-slider";
import { haveSameStart } from "@/components/runs/pick-layer-runs";
import { Term } from "@/components/terms/term";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { TokenChip } from "@/components/tokens/token-chip";
import { useShortcut } from "@/hooks/use-shortcut";
import { type Column, heatColumns, type Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";
import { Filters, ReplacedKl } from "@/pages/prompt/routing/foot";
import type { RoutingState } from "@/pages/prompt/routing/routing-params";
import { ExpertOfToken, ExpertsHead, NextToken } from "@/pages/prompt/routing/token/token-panel";

import {
  type Fed,
  laterCells,
  sharedLayers,
  strongestFed,
  TRACED_EXPERTS,
  type TracedCell,
  type TraceLayer,
  traceLayers,
} from "./trace-rows";
import { TraceTable } from "./trace-table";

import "./trace.css";

const NONE: readonly Fed[] = [];

/** `fed` is undefined while it is measured, and empty without a chosen cell. */
function useFeeds(text: string, layers: readonly TraceLayer[], chosen: TracedCell | null) {
  const later = useMemo(() => (chosen === null ? [] : laterCells(layers, chosen)), [layers, chosen]);
  const { data, error } = useQuery(
    circuitEffectsQuery(
      chosen === null || later.length === 0
        ? null
        : {
            runs: layers.map(({ run }) => run),
            text,
            groups: [[chosen]],
            read: later.map(({ run, position, expert }) => ({ run, position, expert })),
          },
    ),
  );
  const fed = useMemo(() => {
    if (later.length === 0) return NONE;
    return data?.[0] === undefined ? undefined : strongestFed(later, data[0].activations);
  }, [later, data]);
  return { fed, error };
}

interface PathPanelProps {
  readonly column: Column;
  readonly layers: readonly TraceLayer[];
  readonly predicted: Predicted;
  /** What replaces the MLPs. */
  readonly method: string;
}

function LayerOfPath({ layer, position }: { readonly layer: TraceLayer; readonly position: number }) {
  const experts = layer.tokens.get(position) ?? [];
  return (
    <tbody aria-label={`Layer ${layer.layer}`}>
      <tr>
        <th scope="rowgroup" colSpan={4} className="layer">
          Layer {layer.layer}
        </th>
      </tr>
      {experts.map(({ row, cell }) => (
        <ExpertOfToken
          key={row.expert}
          run={layer.run}
          routed={{ expert: row.expert, ...cell }}
          info={row.info}
          end={layer.end}
        />
      ))}
      {experts.length === 0 && (
        <tr>
          <td colSpan={4} className="dim">
            No expert below this density
          </td>
        </tr>
      )}
    </tbody>
  );
}

/** The path of one token: its strongest experts in each layer, in order, and the next token. */
function PathPanel({ column, layers, predicted, method }: PathPanelProps) {
  return (
    <aside className="token-panel trace-path" aria-label="Path of the token">
      <section>
        <div className="pane-h">
          <h2>
            Path of <TokenChip text={column.token.text} />
          </h2>
          <span className="note">position {column.position}</span>
        </div>
        <p className="dim">
          The {TRACED_EXPERTS} experts of each layer with the largest share × rarity. Activation colours are per layer.
        </p>
        <table className="token-experts">
          <ExpertsHead>
            <th>Expert</th>
          </ExpertsHead>
          {layers.map((layer) => (
            <LayerOfPath key={layer.run} layer={layer} position={column.position} />
          ))}
        </table>
      </section>
      <NextToken token={predicted?.[column.position]} method={method} />
    </aside>
  );
}

interface TraceViewProps extends RoutingState {
  readonly run: RunSummary;
  /** The page's run first. */
  readonly routings: readonly RunRouting[];
}

/** The routings with the layers of their runs. */
function useLayerRoutings(routings: readonly RunRouting[]) {
  const { runs } = useCurrentRun();
  return useMemo(
    () =>
      routings.flatMap((response) => {
        const run = runs.find(({ name }) => name === response.run);
        return run === undefined ? [] : [{ layer: run.layer, response }];
      }),
    [routings, runs],
  );
}

interface NotesProps {
  readonly runs: readonly RunSummary[];
  readonly layers: number;
  readonly columns: readonly Column[];
  readonly predicted: Predicted;
}

function Notes({ runs, layers, ...shared }: NotesProps) {
  return (
    <p className="dim">
      Each layer reads the original model’s activations. A cell shows the expert with the largest{" "}
      <Term id="traced_order">share × rarity</Term>.
      {runs.some((run, i) => runs.slice(0, i).some((other) => haveSameStart(run, other))) &&
        " Experts of one number may mean the same in several layers: they were initialised at the same example token."}{" "}
      <ReplacedKl subject={`All ${layers} layers spliced in together`} layers={layers} {...shared} />
    </p>
  );
}

interface FeedsProps {
  readonly chosen: TracedCell | null;
  readonly feeds: ReturnType<typeof useFeeds>;
}

/** What the lines show, or what to press for them. */
function Feeds({ chosen, feeds: { fed, error } }: FeedsProps) {
  const text =
    chosen === null
      ? "Press a cell to see what it feeds."
      : fed === undefined
        ? "Ablating the expert on this token…"
        : fed.length === 0
          ? "Ablating this expert changes no cell above it by 0.1 % or more."
          : "What it adds to later cells, measured by ablating it on this token: green raises, purple lowers.";
  return (
    <p className={chosen === null ? "dim" : undefined} role="status">
      {error === null ? text : <span className="bad">{messageOf(error)}</span>}
    </p>
  );
}

export function TraceView({ run, routings, params, setParams }: TraceViewProps) {
  const [first] = routings;
  const layered = useLayerRoutings(routings);
  const columns = useMemo(() => (first === undefined ? [] : heatColumns(first, params.start)), [first, params.start]);
  const layers = useMemo(() => traceLayers(layered, columns, params.density), [layered, columns, params.density]);
  const prompt = { text: params.prompt, k: effectiveK(run, params.k) };
  useShare(run.name, () => ({ kind: "layers", ...prompt, ...sharedLayers(columns, layers) }));
  const others = routings.slice(1).map((routing) => routing.run);
  const { runs } = useCurrentRun();
  const shown = runs.filter(({ name }) => routings.some((routing) => routing.run === name));
  const { data } = useQuery(predictionsQuery(run.name, prompt, others));
  const predicted = data?.tokens.length === first?.tokens.length ? data?.tokens : undefined;
  const column = columns.find(({ position }) => position === params.lock?.position) ?? columns.at(-1);
  const { lock, of } = params;
  const chosen = useMemo(
    () => (lock?.expert == null || of === "" ? null : { run: of, position: lock.position, expert: lock.expert }),
    [lock, of],
  );
  const feeds = useFeeds(params.prompt, layers, chosen);
  const onChoose = useCallback(
    (position: number, cell: TracedCell | null) => {
      const isSame = cell !== null && cell.run === chosen?.run && cell.position === chosen.position;
      const next = isSame ? null : cell;
      setParams({ lock: { position, expert: next?.expert ?? null }, of: next?.run ?? "" });
    },
    [setParams, chosen],
  );
  useShortcut("release", () => setParams({ lock: null, of: "" }), lock !== null);
  return (
    <>
      <section className="prompted-main trace-pane" aria-label="Layers">
        <div className="pane-h">
          <Feeds chosen={chosen} feeds={feeds} />
          <span className="grow" />
          <RampLegend kind="sequential" low="Activation 0" high="the layer’s largest here" />
          <KSlider run={run} k={params.k} onChange={(k) => setParams({ k })} />
        </div>
        <TraceTable
          prompt={params.prompt}
          columns={columns}
          layers={layers}
          predicted={predicted}
          current={column?.position}
          chosen={chosen}
          fed={feeds.fed ?? NONE}
          onChoose={onChoose}
        />
        <div className="heat-foot">
          <Notes runs={shown} layers={layers.length} columns={columns} predicted={predicted} />
          <Filters params={params} setParams={setParams} />
        </div>
      </section>
      {column !== undefined && (
        <PathPanel column={column} layers={layers} predicted={predicted} method={`${layers.length} layers`} />
      )}
    </>
  );
}
