/** A text through several layers at once: all tokens in a table, and the path of one token below it. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useCallback, useMemo } from "react";

import { messageOf } from "@/api/http";
import { circuitEffectsQuery } from "@/api/queries";
import type { RunRouting, RunSummary } from "@/api/types";
import { useShare } from "@/components/layout/share";
import { useCurrentRun } from "@/components/runs/current-run";
import { effectiveK } from "@/components/runs/k-slider";
import { haveSameStart } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { TokenChip } from "@/components/tokens/token-chip";
import { useShortcut } from "@/hooks/use-shortcut";
import { FoundExpert } from "@/pages/prompt/expert-name";
import { type Column, heatColumns, type Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";
import { Filters, ReplacedKl, usePredictions } from "@/pages/prompt/routing/foot";
import type { RoutingState } from "@/pages/prompt/routing/routing-params";
import { ExpertOfToken, NextToken } from "@/pages/prompt/routing/token/token-panel";

import {
  cellKey,
  controlsOf,
  type Fed,
  isTrivial,
  leadCells,
  percentOf,
  readCells,
  sharedLayers,
  strongestFed,
  toldOf,
  TRACED_EXPERTS,
  type TracedCell,
  type TraceLayer,
  traceLayers,
} from "./trace-rows";
import { TraceTable } from "./trace-table";

import "./trace.css";

/** A cell, and the later cells that it feeds; undefined while they are measured. */
interface Feeds {
  readonly cell: TracedCell | null;
  readonly fed: readonly Fed[] | undefined;
  /** The one to tell of. */
  readonly told: Fed | undefined;
}

const nodeOf = ({ run, position, expert }: TracedCell) => ({ run, position, expert });

/** Changes of the read cells when each of the sources is ablated by itself; nothing is measured without a source. */
function useChanges(
  text: string,
  layers: readonly TraceLayer[],
  sources: readonly TracedCell[],
  read: readonly TracedCell[],
) {
  const runs = layers.map(({ run }) => run);
  const groups = sources.map((source) => [nodeOf(source)]);
  return useQuery(circuitEffectsQuery(sources.length === 0 ? null : { runs, text, groups, read: read.map(nodeOf) }));
}

/**
 * What the chosen cell feeds. Without a choice: of the cells with the clearest and most specific experts, the one with
 * the largest effect × trust in both names that is not trivial, on another token if that is half as large.
 */
function useFeeds(text: string, layers: readonly TraceLayer[], chosen: TracedCell | null, isOpen: boolean) {
  const cells = useMemo(() => readCells(layers), [layers]);
  const sources = useMemo(() => {
    if (chosen !== null) return cells.filter((cell) => cellKey(cell) === cellKey(chosen));
    return isOpen && layers.length > 1 ? leadCells(cells) : [];
  }, [chosen, isOpen, layers, cells]);
  const { data, error } = useChanges(text, layers, sources, cells);
  const feeds = useMemo((): Feeds => {
    if (sources.length === 0) return { cell: null, fed: NONE, told: undefined };
    if (data === undefined) return { cell: chosen, fed: undefined, told: undefined };
    const found = sources.map((cell, i) => {
      const fed = strongestFed(cells, cell, data[i]?.activations ?? []);
      const told = toldOf(fed, cell.name);
      if (told === undefined) return { cell, fed, told, size: 0 };
      const trust = Math.sqrt((cell.trust + 0.01) * (told.trust + 0.01));
      const surprise = isTrivial(told.name, cell.name) ? 0.001 : told.position === cell.position ? 1 : 2;
      return { cell, fed, told, size: Math.abs(told.share) * trust * surprise };
    });
    return found.toSorted((a, b) => b.size - a.size)[0] ?? { cell: null, fed: NONE, told: undefined };
  }, [sources, data, chosen, cells]);
  return { feeds, error };
}

/** The mean relative change of the told cell by other experts of the token, as text; undefined while it is measured. */
function useControl(
  text: string,
  layers: readonly TraceLayer[],
  routings: readonly RunRouting[],
  { cell, told }: Feeds,
) {
  const experts = cell === null || told === undefined ? [] : controlsOf(routings, cell);
  const sources = cell === null ? [] : experts.map((expert) => ({ ...cell, expert }));
  const { data } = useChanges(text, layers, sources, told === undefined ? [] : [told]);
  if (data === undefined || told === undefined) return undefined;
  const activation = told.change / told.share;
  const shares = data.map(({ activations: [change = 0] }) => Math.abs(change / activation));
  return { count: shares.length, share: shares.reduce((sum, share) => sum + share, 0) / Math.max(1, shares.length) };
}

const NONE: readonly Fed[] = [];

interface PathProps {
  readonly column: Column;
  /** From the first layer to the last. */
  readonly layers: readonly TraceLayer[];
  readonly predicted: Predicted;
  /** What replaces the MLPs. */
  readonly method: string;
}

/** The path of one token: a column for each layer with its strongest experts, and the next token. */
function Path({ column: { position, token }, layers, predicted, method }: PathProps) {
  return (
    <aside className="trace-path" aria-label="Path of the token">
      <div className="row pane-h">
        <h2>
          Path of <TokenChip text={token.text} />
        </h2>
        <span className="note">
          position {position}; the {TRACED_EXPERTS} experts of each layer with the largest share × rarity
        </span>
      </div>
      {layers.map(({ run, layer, end, tokens }) => (
        <section key={run} aria-label={`Layer ${layer}`}>
          <h3>Layer {layer}</h3>
          <ul className="token-experts">
            {tokens.get(position)?.map(({ row: { expert, info }, cell }) => (
              <ExpertOfToken key={expert} run={run} routed={{ expert, ...cell }} info={info} end={end} />
            ))}
          </ul>
          {tokens.get(position)?.length === 0 && <p className="dim">No expert below this density</p>}
        </section>
      ))}
      <NextToken token={predicted?.[position]} method={method} count={5} />
    </aside>
  );
}

interface TraceViewProps extends RoutingState {
  readonly run: RunSummary;
  /** The page's run first. */
  readonly routings: readonly RunRouting[];
}

interface FindingProps {
  readonly layers: readonly TraceLayer[];
  readonly columns: readonly Column[];
  readonly found: ReturnType<typeof useFeeds>;
  readonly control: ReturnType<typeof useControl>;
}

/** The finding: an effect of the marked cell beside that of other experts, or what to press for one. */
function Finding({ layers, columns, found: { feeds, error }, control }: FindingProps) {
  const named = ({ run, position, expert }: TracedCell) => {
    const layer = layers.find((one) => one.run === run);
    const text = columns.find((column) => column.position === position)?.token.text ?? "";
    const found = layer?.tokens.get(position)?.find(({ row }) => row.expert === expert);
    return (
      <FoundExpert info={found?.row.info} expert={expert}>
        layer {layer?.layer}, on <TokenChip text={text} />
      </FoundExpert>
    );
  };
  const { cell, fed, told } = feeds;
  if (error !== null) return <p className="bad finding">{messageOf(error)}</p>;
  return (
    <p className="finding" role="status">
      {fed === undefined && (cell === null ? "Looking for the expert that feeds most…" : "Ablating the expert…")}
      {fed !== undefined && cell === null && "Press a cell to see what it feeds."}
      {fed !== undefined && cell !== null && told === undefined && (
        <>{named(cell)} changes no cell above it by 0.1 % or more.</>
      )}
      {cell !== null && told !== undefined && (
        <>
          {named(cell)} {told.change > 0 ? "raises" : "lowers"} {named(told)} by <b>{percentOf(told.share)}</b>
          {control !== undefined && control.count > 0 && (
            <>
              ; {control.count} other experts of its token change it by {percentOf(control.share)} on average
              {Math.abs(told.share) < 2 * control.share && ": no clear effect"}
            </>
          )}
          . <span className="dim">Press any cell.</span>
        </>
      )}
    </p>
  );
}

function useChosen({ lock, of }: RoutingState["params"]): TracedCell | null {
  return useMemo(
    () => (lock?.expert == null || of === "" ? null : { run: of, position: lock.position, expert: lock.expert }),
    [lock, of],
  );
}

/** What the signs mean, and beside the finding what the layers cost. */
const Legend = ({ children }: { readonly children: ReactNode }) => (
  <div className="row pane-h">
    <RampLegend kind="sequential" low="Activation 0" high="the layer’s largest here" />
    <span className="ramp">
      <i>
        <b className="u4" />
      </i>
      raised
      <i>
        <b className="d4" />
      </i>
      lowered, in % of the activation
    </span>
    <span className="dim">→ writes, without a clear label</span>
    <span className="grow" />
    {children}
  </div>
);

function Notes({ layers }: { readonly layers: readonly TraceLayer[] }) {
  const { runs } = useCurrentRun();
  const shown = runs.filter(({ name }) => layers.some(({ run }) => run === name));
  return (
    <p className="dim">
      Each layer reads the original model’s activations. A cell shows the expert with the largest{" "}
      <Term id="traced_order">share × rarity</Term>.
      {shown.some((run, i) => shown.slice(0, i).some((other) => haveSameStart(run, other))) &&
        " Experts of one number may mean the same in several layers: they were initialised at the same example token."}
    </p>
  );
}

export function TraceView({ run, routings, params, setParams }: TraceViewProps) {
  const [first] = routings;
  const { runs } = useCurrentRun();
  const columns = useMemo(() => (first === undefined ? [] : heatColumns(first, params.start)), [first, params.start]);
  const layers = useMemo(
    () => traceLayers(routings, runs, columns, params.density),
    [routings, runs, columns, params.density],
  );
  const prompt = { text: params.prompt, k: effectiveK(run, params.k) };
  useShare(run.name, () => ({ kind: "layers", ...prompt, ...sharedLayers(columns, layers) }));
  const predicted = usePredictions(routings, prompt);
  const { lock } = params;
  const found = useFeeds(params.prompt, layers, useChosen(params), lock === null);
  const control = useControl(params.prompt, layers, routings, found.feeds);
  const { cell, fed } = found.feeds;
  const current = lock?.position ?? cell?.position;
  const column = columns.find(({ position }) => position === current) ?? columns.at(-1);
  const onChoose = useCallback(
    (position: number, pressed: TracedCell | null) => {
      const isSame = pressed !== null && pressed.run === cell?.run && pressed.position === cell.position;
      const next = isSame ? null : pressed;
      setParams({ lock: { position, expert: next?.expert ?? null }, of: next?.run ?? "" });
    },
    [setParams, cell],
  );
  useShortcut("release", () => setParams({ lock: null, of: "" }), lock !== null);
  return (
    <>
      <section className="prompted-main trace-pane" aria-label="Layers">
        <Finding layers={layers} columns={columns} found={found} control={control} />
        <Legend>
          <ReplacedKl
            subject={`All ${layers.length} layers spliced in`}
            layers={layers.length}
            columns={columns}
            predicted={predicted}
          />
        </Legend>
        <TraceTable
          prompt={params.prompt}
          columns={columns}
          layers={layers}
          predicted={predicted}
          current={fed === undefined ? current : column?.position}
          locked={lock?.position ?? null}
          chosen={cell}
          fed={fed}
          onChoose={onChoose}
        />
      </section>
      {column !== undefined && (
        <Path column={column} layers={layers.toReversed()} predicted={predicted} method={`${layers.length} layers`} />
      )}
      <div className="row wrap heat-foot">
        <Notes layers={layers} />
        <Filters params={params} setParams={setParams} />
      </div>
    </>
  );
}
