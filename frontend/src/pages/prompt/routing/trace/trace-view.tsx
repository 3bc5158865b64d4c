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
import { formatFixed } from "@/lib/text/format";
import { FoundExpert } from "@/pages/prompt/expert-name";
import { type Column, heatColumns, type Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";
import { Filters, ReplacedKl, usePredictions } from "@/pages/prompt/routing/foot";
import type { RoutingState } from "@/pages/prompt/routing/routing-params";
import { ExpertOfToken, NextToken } from "@/pages/prompt/routing/token/token-panel";

import {
  cellKey,
  controlsOf,
  expertsByLayer,
  type Fed,
  headlineOf,
  leadCells,
  percentOf,
  type ReadCell,
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
  readonly cell: ReadCell | null;
  readonly fed: readonly Fed[] | undefined;
  /** The one to tell of. */
  readonly told: Fed | undefined;
}

const nodeOf = ({ run, position, expert }: TracedCell) => ({ run, position, expert });

/** The text that is traced. */
interface Traced {
  readonly text: string;
  readonly layers: readonly TraceLayer[];
  readonly routings: readonly RunRouting[];
}

type Groups = readonly (readonly TracedCell[])[];

/** Changes of the read cells, and of the logit of a position's next token, when each group is ablated by itself. */
function useChanges({ text, layers }: Traced, groups: Groups, read: readonly TracedCell[], position?: number) {
  const request = {
    ...{ text, position: position ?? null, runs: layers.map(({ run }) => run) },
    groups: groups.map((group) => group.map(nodeOf)),
    read: read.map(nodeOf),
  };
  return useQuery(circuitEffectsQuery(groups.length === 0 ? null : request));
}

/** A change is clear if it is so many times the mean change by other experts of the token. */
const CLEAR = 2;

/** The mean relative change of the told cell by other experts of the token; undefined while it is measured. */
function useControl(traced: Traced, { cell, told }: Feeds) {
  const groups = cell === null || told === undefined ? [] : controlsOf(traced.routings, cell);
  const { data = groups.length > 0 ? undefined : [] } = useChanges(traced, groups, told === undefined ? [] : [told]);
  if (told === undefined || data === undefined) return undefined;
  const sum = data.reduce((total, { activations: [change = 0] }) => total + Math.abs(change), 0);
  const share = (sum / Math.max(1, data.length)) * Math.abs(told.share / told.change);
  return { count: data.length, share, isClear: Math.abs(told.share) >= CLEAR * share };
}

/** What the chosen cell feeds; without a choice, what the headline tells of, if that is clear. */
function useFeeds(traced: Traced, chosen: TracedCell | null, isOpen: boolean) {
  const cells = useMemo(() => readCells(traced.layers), [traced]);
  const sources = useMemo(() => {
    if (chosen !== null) return cells.filter((cell) => cellKey(cell) === cellKey(chosen));
    return isOpen ? leadCells(cells) : [];
  }, [chosen, isOpen, cells]);
  const groups = sources.map((cell) => [cell]);
  const { data, error } = useChanges(traced, groups, cells);
  const measured = useMemo((): Feeds => {
    const [cell] = sources;
    if (cell === undefined) return NOTHING;
    if (data === undefined) return chosen === null ? PENDING : { ...PENDING, cell };
    const changes = data.map(({ activations }) => activations);
    if (chosen === null) return headlineOf(cells, sources, changes) ?? NOTHING;
    const fed = strongestFed(cells, cell, changes[0] ?? []);
    return { cell, fed, told: toldOf(fed, cell.name) };
  }, [sources, data, chosen, cells]);
  const control = useControl(traced, measured);
  const isTold = chosen !== null || measured.told === undefined || control?.isClear === true;
  if (!isTold) return { feeds: control === undefined ? PENDING : NOTHING, control, error };
  // Arrows of changes that other experts cause too would tell of nothing.
  const isAbove = ({ share }: Fed) => control !== undefined && Math.abs(share) >= CLEAR * control.share;
  const fed = measured.told === undefined ? measured.fed : measured.fed?.filter(isAbove);
  return { feeds: { ...measured, fed }, control, error };
}

/** By layer, how much its experts on a token raise the logit of the next token; empty while it is measured. */
function useCarried(traced: Traced, position: number | undefined): ReadonlyMap<number, number> {
  const groups = position === undefined ? [] : expertsByLayer(traced.layers, traced.routings, position);
  const { data } = useChanges(traced, groups, [], position);
  return new Map(data?.map(({ target }, i) => [groups[i]?.[0]?.layer ?? -1, -target]));
}

const NOTHING: Feeds = { cell: null, fed: [], told: undefined };
const PENDING: Feeds = { ...NOTHING, fed: undefined };

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

interface CarriedProps extends Pick<PathProps, "column" | "predicted"> {
  readonly carried: ReadonlyMap<number, number>;
}

/** Which layer's experts carry a token's next token. */
function Carried({ carried, column: { position, token }, predicted }: CarriedProps) {
  const next = predicted?.[position]?.predictions[0];
  const [first] = [...carried].sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
  if (first === undefined || next === undefined) return "Measuring which layer carries the next token…";
  return (
    <>
      <b>Layer {first[0]}</b> changes the next token most: its experts on <TokenChip text={token.text} />{" "}
      {first[1] > 0 ? "raise" : "lower"} the logit of <TokenChip text={next.text} /> by{" "}
      <b>{formatFixed(Math.abs(first[1]), 1)}</b>.
    </>
  );
}

interface FindingProps {
  readonly columns: readonly Column[];
  readonly found: ReturnType<typeof useFeeds>;
  /** The sentence without a cell. */
  readonly children: ReactNode;
}

/** The finding: an effect of the marked cell beside that of other experts, or which layers carry the next token. */
function Finding({ columns, found: { feeds, control, error }, children }: FindingProps) {
  const named = ({ layer, position, expert, info }: ReadCell) => (
    <FoundExpert info={info} expert={expert}>
      layer {layer}, <TokenChip text={columns.find((column) => column.position === position)?.token.text ?? ""} />
    </FoundExpert>
  );
  const { cell, fed, told } = feeds;
  if (error !== null) return <p className="bad finding">{messageOf(error)}</p>;
  return (
    <p className="finding" role="status">
      {fed === undefined && (cell === null ? "Looking for the expert that feeds most…" : "Ablating the expert…")}
      {fed !== undefined && cell === null && children}
      {fed !== undefined && cell !== null && told === undefined && (
        <>{named(cell)} changes no cell above it by 0.1 % or more.</>
      )}
      {cell !== null && told !== undefined && (
        <>
          {named(cell)} {told.change > 0 ? "raises" : "lowers"} {named(told)} by <b>{percentOf(told.share)}</b>
          {control !== undefined && control.count > 0 && (
            <>
              ; {control.count} other experts there change it by {percentOf(control.share)} on average
              {!control.isClear && ": no clear effect"}
            </>
          )}
          .
        </>
      )}
    </p>
  );
}

function useChosen({ params: { lock, of }, setParams }: RoutingState) {
  const chosen = useMemo((): TracedCell | null => {
    return lock?.expert == null || of === "" ? null : { run: of, position: lock.position, expert: lock.expert };
  }, [lock, of]);
  const onChoose = useCallback(
    (position: number, pressed: TracedCell | null) => {
      const next = pressed === null || chosen === null || cellKey(pressed) !== cellKey(chosen) ? pressed : null;
      setParams({ lock: { position, expert: next?.expert ?? null }, of: next?.run ?? "" });
    },
    [setParams, chosen],
  );
  useShortcut("release", () => setParams({ lock: null, of: "" }), lock !== null);
  return { chosen, onChoose };
}

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
  const { chosen, onChoose } = useChosen({ params, setParams });
  const traced = useMemo(() => ({ text: params.prompt, layers, routings }), [params.prompt, layers, routings]);
  const found = useFeeds(traced, chosen, lock === null);
  const { cell, fed } = found.feeds;
  const current = lock?.position ?? cell?.position;
  const column = columns.find(({ position }) => position === current) ?? columns.at(-1);
  const isUntold = cell === null && fed !== undefined;
  const carried = useCarried(traced, isUntold ? column?.position : undefined);
  return (
    <>
      <section className="prompted-main trace-pane" aria-label="Layers">
        <Finding columns={columns} found={found}>
          {column !== undefined && <Carried carried={carried} column={column} predicted={predicted} />}
          {lock === null && layers.length > 1 && " No cell clearly raises one of another word."}
        </Finding>
        <div className="row pane-h">
          <RampLegend kind="sequential" low="Activation" high="largest of the layer" />
          <span className="dim">Press a cell for its effects on later ones</span>
          <span className="grow" />
          <ReplacedKl
            subject={`${layers.length} layers spliced in`}
            layers={layers.length}
            columns={columns}
            predicted={predicted}
          />
        </div>
        <TraceTable
          prompt={params.prompt}
          columns={columns}
          layers={layers}
          predicted={predicted}
          current={fed === undefined ? current : column?.position}
          chosen={cell}
          fed={fed}
          carried={carried}
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
