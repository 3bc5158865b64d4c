/** A text through several layers at once: all tokens in a table, and the path of one token below it. */

import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";

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
  type Fed,
  fedPercent,
  leadCells,
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
}

const NONE: readonly Fed[] = [];

/** What the chosen cell feeds. Without a choice: of the most specific cells, the one with the largest effect. */
function useFeeds(text: string, layers: readonly TraceLayer[], chosen: TracedCell | null, isOpen: boolean) {
  const cells = useMemo(() => readCells(layers), [layers]);
  const sources = useMemo(() => {
    if (chosen !== null) return [chosen];
    return isOpen && layers.length > 1 ? leadCells(cells) : [];
  }, [chosen, isOpen, layers, cells]);
  const named = ({ run, position, expert }: TracedCell) => ({ run, position, expert });
  const { data, error } = useQuery(
    circuitEffectsQuery(
      sources.length === 0
        ? null
        : {
            runs: layers.map(({ run }) => run),
            text,
            groups: sources.map((source) => [named(source)]),
            read: cells.map(named),
          },
    ),
  );
  const feeds = useMemo((): Feeds => {
    if (sources.length === 0) return { cell: null, fed: NONE };
    if (data === undefined) return { cell: chosen, fed: undefined };
    const found = sources.map((cell, i) => ({ cell, fed: strongestFed(cells, cell, data[i]?.activations ?? []) }));
    const size = ({ fed }: (typeof found)[number]) => Math.abs(toldOf(fed)?.share ?? 0);
    return found.toSorted((a, b) => size(b) - size(a))[0] ?? { cell: null, fed: NONE };
  }, [sources, data, chosen, cells]);
  return { feeds, error };
}

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

interface FindingProps {
  readonly layers: readonly TraceLayer[];
  readonly columns: readonly Column[];
  readonly found: ReturnType<typeof useFeeds>;
}

/** The finding: the largest effect of the marked cell, or what to press for one. */
function Finding({ layers, columns, found: { feeds, error } }: FindingProps) {
  const named = ({ run, position, expert }: TracedCell) => {
    const layer = layers.find((one) => one.run === run);
    const text = columns.find((column) => column.position === position)?.token.text ?? "";
    const found = layer?.tokens.get(position)?.find(({ row }) => row.expert === expert);
    return (
      <FoundExpert info={found?.row.info}>
        {expert}, layer {layer?.layer}, on <TokenChip text={text} />
      </FoundExpert>
    );
  };
  const { cell, fed } = feeds;
  const first = toldOf(fed ?? []);
  if (error !== null) return <p className="bad finding">{messageOf(error)}</p>;
  return (
    <p className="finding" role="status">
      {fed === undefined && (cell === null ? "Looking for the expert that feeds most…" : "Ablating the expert…")}
      {fed !== undefined && cell === null && "Press a cell to see what it feeds."}
      {fed !== undefined && cell !== null && first === undefined && (
        <>{named(cell)} changes no cell above it by 0.1 % or more.</>
      )}
      {cell !== null && first !== undefined && (
        <>
          {named(cell)} {first.change > 0 ? "raises" : "lowers"} {named(first)} by <b>{fedPercent(first).slice(1)}</b>.{" "}
          <span className="dim">Press any cell.</span>
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

const Legend = () => (
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
  </div>
);

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
  const chosen = useChosen(params);
  const found = useFeeds(params.prompt, layers, chosen, lock === null);
  const { cell, fed = NONE } = found.feeds;
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
        <Finding layers={layers} columns={columns} found={found} />
        <Legend />
        <TraceTable
          prompt={params.prompt}
          columns={columns}
          layers={layers}
          predicted={predicted}
          current={found.feeds.fed === undefined ? current : column?.position}
          chosen={cell}
          fed={fed}
          onChoose={onChoose}
        />
      </section>
      {column !== undefined && (
        <Path column={column} layers={layers.toReversed()} predicted={predicted} method={`${layers.length} layers`} />
      )}
      <div className="row wrap heat-foot">
        <Notes
          runs={runs.filter(({ name }) => layers.some(({ run }) => run === name))}
          layers={layers.length}
          columns={columns}
          predicted={predicted}
        />
        <Filters params={params} setParams={setParams} />
      </div>
    </>
  );
}
