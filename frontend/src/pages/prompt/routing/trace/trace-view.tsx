/** A text through several layers at once: all tokens in a table, and beside it what makes the next token. */

import { useQueries, useQuery, type UseQueryResult } from "@tanstack/react-query";
import { Fragment, useCallback, useMemo } from "react";
import { Link } from "react-router";

import { messageOf } from "@/api/http";
import { circuitEffectsQuery } from "@/api/queries";
import type { CircuitEffectsRequest, GroupEffect, RunRouting, RunSummary } from "@/api/types";
import { ActivationCell, ItalicNote } from "@/components/experts/expert-link";
import { useShare } from "@/components/layout/share";
import { useCurrentRun } from "@/components/runs/current-run";
import { effectiveK } from "@/components/runs/k-slider";
import { haveSameStart, pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/tray-context";
import { useShortcut } from "@/hooks/use-shortcut";
import { formatFixed, formatPlural, formatShare } from "@/lib/text/format";
import { ExpertName, FoundExpert } from "@/pages/prompt/expert-name";
import { type Column, heatColumns, type Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";
import { ReplacedKl, usePredictions } from "@/pages/prompt/routing/foot";
import type { RoutingState } from "@/pages/prompt/routing/routing-params";
import { NextToken } from "@/pages/prompt/routing/token/token-panel";

import {
  ablationsOf,
  byEffect,
  cellKey,
  controlsOf,
  percentOf,
  type Raiser,
  type Raisers,
  type ReadCell,
  readCells,
  sharedLayers,
  strongestFed,
  type TracedCell,
  type TraceLayer,
  traceLayers,
} from "./trace-rows";
import { Signed, TraceTable } from "./trace-table";

import "./trace.css";

/** The text that is traced. */
interface Traced {
  readonly text: string;
  readonly layers: readonly TraceLayer[];
  readonly routings: readonly RunRouting[];
}

type Groups = readonly (readonly TracedCell[])[];

const nodeOf = ({ run, position, expert }: TracedCell) => ({ run, position, expert });

/** Effects when each group of experts is ablated by itself, and what is read or compared. */
function effectsQuery({ text, layers }: Traced, groups: Groups, more: Partial<CircuitEffectsRequest>) {
  const runs = layers.map(({ run }) => run);
  return circuitEffectsQuery(
    groups.length === 0 ? null : { text, runs, groups: groups.map((group) => group.map(nodeOf)), ...more },
  );
}

/** The cells, the chosen one, and the later ones that it feeds, beside other experts of its token. */
function useFeeds(traced: Traced, raisers: Raisers, position: number, chosen: TracedCell | null) {
  const layers = useMemo(() => {
    // In the order of the effects while the headline is about them.
    const isByEffect = chosen === null && raisers.size === traced.layers.length;
    return byEffect(traced.layers, isByEffect ? raisers : new Map(), position, chosen);
  }, [traced, raisers, position, chosen]);
  const cells = useMemo(() => readCells(layers), [layers]);
  const cell =
    cells.find((one) => chosen !== null && cellKey(one) === cellKey(chosen) && one.expert === chosen.expert) ?? null;
  const controls = cell === null ? [] : controlsOf(traced.routings, cell);
  const { data, error } = useQuery(
    effectsQuery(traced, cell === null ? [] : [[cell]], {
      read: cells.map(nodeOf),
      controls: controls.map(nodeOf),
    }),
  );
  const effect = data?.[0];
  const fed = useMemo(() => {
    if (cell === null) return [];
    return effect && strongestFed(cells, cell, effect);
  }, [cells, cell, effect]);
  return { layers, cell, fed, numOthers: controls.length, error };
}

/** Effects of each layer's experts on a token; without the layers that are not measured yet, the last one first. */
function useRaisers(traced: Traced, position: number) {
  const { layers, routings } = traced;
  const groups = useMemo(
    () => layers.map(({ run }) => ablationsOf(routings, run, position)),
    [layers, routings, position],
  );
  const combine = useCallback(
    (found: readonly UseQueryResult<readonly GroupEffect[]>[]) => {
      const raisers: Raisers = new Map(
        layers.flatMap((layer, i) => {
          const data = groups[i]?.length === 0 ? [] : found[i]?.data;
          if (data === undefined) return [];
          const effects = new Map(data.slice(1).map(({ target }, j) => [groups[i]?.[j + 1]?.[0]?.expert, -target]));
          const experts = (layer.tokens.get(position) ?? []).flatMap(({ row, cell }): readonly Raiser[] => {
            const effect = effects.get(row.expert);
            return effect === undefined ? [] : [{ layer, row, cell, effect }];
          });
          experts.sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect));
          return [[layer.run, { joint: -(data[0]?.target ?? 0), experts }] as const];
        }),
      );
      return { raisers, error: found.find(({ error }) => error !== null)?.error ?? null };
    },
    [layers, groups, position],
  );
  return useQueries({ queries: groups.map((ablated) => effectsQuery(traced, ablated, { position })), combine });
}

const MAX_RANKED = 3;

interface RaisedProps {
  readonly column: Column;
  readonly layers: readonly TraceLayer[];
  readonly raisers: Raisers;
  readonly predicted: Predicted;
}

interface NextPanelProps extends RaisedProps {
  readonly chosen: TracedCell | null;
  /** Whether the token was chosen, so that on a narrow screen the panel stays in view. */
  readonly isLocked: boolean;
}

/** What a token's experts do to the next token: the experts of each layer with the largest effects. */
function NextPanel({ column: { position, token }, layers, raisers, chosen, predicted, isLocked }: NextPanelProps) {
  const next = predicted?.[position]?.predictions[0];
  return (
    <aside className="token-panel raisers" aria-label="Effects on the next token" data-locked={isLocked}>
      <section>
        <div className="row pane-h">
          <h2>
            <TokenChip text={token.text} /> → {next === undefined ? "…" : <TokenChip text={next.text} />}
          </h2>
          <span className="note">position {position}</span>
        </div>
        <p className="dim">
          {next !== undefined && (
            <>
              Effect on its logit, expert, <Term id="activation">activation</Term>
            </>
          )}
        </p>
        {layers.map(({ run, layer, end }) => {
          const measured = raisers.get(run);
          const isShown = ({ row }: Raiser, i: number) =>
            i < MAX_RANKED || (chosen?.run === run && chosen.expert === row.expert);
          const ranked = measured?.experts.filter(isShown) ?? [];
          return (
            <section key={run} aria-label={`Layer ${layer}`} aria-busy={measured === undefined}>
              <h3 className="row">
                Layer {layer}
                <span className="grow" />
                {measured === undefined ? (
                  "measuring…"
                ) : (
                  <>
                    together <Signed value={measured.joint} />
                  </>
                )}
              </h3>
              <ul>
                {ranked.map(({ row: { expert, info }, cell, effect }) => (
                  <li key={expert} className={chosen?.run === run && chosen.expert === expert ? "rowlk" : undefined}>
                    <Signed value={effect} />
                    <Link className="lab cut" to={pageLinks(run).expert(expert)}>
                      <ExpertName info={info} />
                      <span className="sr">, expert {expert}</span>
                    </Link>
                    <ActivationCell value={cell.activation} largest={end} />
                    <span className="mono">{expert}</span>
                    <PlusButton expert={expert} run={run} />
                  </li>
                ))}
              </ul>
              {measured?.experts.length === 0 && <p className="dim">No expert below this density</p>}
            </section>
          );
        })}
      </section>
      <NextToken token={predicted?.[position]} method={formatPlural(layers.length, "layer")} count={4} />
    </aside>
  );
}

/** The smallest effect on a logit that the finding calls one. */
const MIN_EFFECT = 0.1;

const effectsOf = (raisers: Raisers) =>
  [...raisers.values()].flatMap(({ experts }) => experts).toSorted((a, b) => b.effect - a.effect);

/** The next token's probabilities, and which experts raise and lower its logit most. */
function Raised({ column: { position, token }, layers, raisers, predicted }: RaisedProps) {
  const next = predicted?.[position]?.predictions[0];
  if (next === undefined || raisers.size < layers.length) return "Measuring which experts change the next token…";
  const all = effectsOf(raisers);
  const ends = [all.find(({ effect }) => effect >= MIN_EFFECT), all.findLast(({ effect }) => effect <= -MIN_EFFECT)];
  const [first, ...more] = ends.filter((end) => end !== undefined);
  const named = ({ layer, row: { info, expert }, effect }: Raiser) => (
    <Fragment key={effect}>
      <FoundExpert info={info} expert={expert}>{`layer ${layer.layer}`}</FoundExpert> <Signed value={effect} />
    </Fragment>
  );
  const on = <TokenChip text={token.text} />;
  return (
    <>
      <span className="block">
        Next token <TokenChip text={next.text} />: <b>{formatShare(next.original, 1)} %</b>, with{" "}
        {formatPlural(layers.length, "layer")} spliced in <b>{formatShare(next.replaced, 1)} %</b>.
      </span>
      {first === undefined ? (
        <>
          {`None of the ${formatPlural(all.length, "expert")} on `}
          {on}
          {` changes its logit by ${MIN_EFFECT} or more by itself`}
        </>
      ) : (
        <>
          {`Most ${first.effect > 0 ? "for" : "against"} its logit on `}
          {on}: {named(first)}
        </>
      )}
      {more.length > 0 && "; against it: "}
      {more.map(named)}.
    </>
  );
}

interface FeedingProps {
  readonly columns: readonly Column[];
  readonly found: ReturnType<typeof useFeeds>;
}

/** The largest change by the chosen cell, beside that by other experts. */
function Feeding({ columns, found: { cell, fed, numOthers } }: FeedingProps) {
  const named = ({ layer, position, expert, info }: ReadCell) => (
    <FoundExpert info={info} expert={expert}>
      layer {layer}, <TokenChip text={columns.find((column) => column.position === position)?.token.text ?? ""} />
    </FoundExpert>
  );
  if (cell === null) return null;
  if (fed === undefined) return "Ablating the expert…";
  const told = fed.find(({ isClear }) => isClear) ?? fed[0];
  if (told === undefined) return <>{named(cell)} changes no cell above it by 0.1 % or more.</>;
  return (
    <>
      {named(cell)} {told.change > 0 ? "raises" : "lowers"} {named(told)} by <b>{percentOf(told.share)}</b>
      {numOthers === 0 ? (
        ", with no other expert there to compare"
      ) : (
        <>
          , more than {!told.isClear && "only "}
          {told.weaker} of {formatPlural(numOthers, "other expert")} there{!told.isClear && ": no clear effect"}
        </>
      )}
      .
    </>
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

/** What the marks mean, the size of most effects, and how exact the layers are. */
function Notes({ columns, layers, raisers, predicted }: Omit<RaisedProps, "column"> & Pick<FeedingProps, "columns">) {
  const { runs } = useCurrentRun();
  const shown = runs.filter(({ name }) => layers.some(({ run }) => run === name));
  const sizes = effectsOf(raisers).map(({ effect }) => Math.abs(effect));
  const median = formatFixed(Math.max(0.01, sizes.toSorted((a, b) => a - b)[Math.floor(sizes.length / 2)] ?? 0));
  return (
    <p className="dim">
      Press a cell for what it changes.{" "}
      {raisers.size === layers.length &&
        sizes.length > 0 &&
        `Half of the ${formatPlural(sizes.length, "effect")} on the next token are below ${median}. `}
      {shown.some((run, i) => shown.slice(0, i).some((other) => haveSameStart(run, other))) &&
        "Equal numbers: initialised at the same token. "}
      <ReplacedKl subject={`${layers.length} layers spliced in`} layers={layers.length} {...{ columns, predicted }} />
    </p>
  );
}

interface TraceViewProps extends RoutingState {
  readonly run: RunSummary;
  /** The page's run first. */
  readonly routings: readonly RunRouting[];
}

export function TraceView({ run, routings, params, setParams }: TraceViewProps) {
  const [first] = routings;
  const { runs } = useCurrentRun();
  const columns = useMemo(() => (first === undefined ? [] : heatColumns(first, params.start)), [first, params.start]);
  const traced = useMemo(
    () => ({ text: params.prompt, routings, layers: traceLayers(routings, runs, columns, params.density) }),
    [params.prompt, routings, runs, columns, params.density],
  );
  const prompt = { text: params.prompt, k: effectiveK(run, params.k) };
  const predicted = usePredictions(routings, prompt);
  const { lock } = params;
  const { chosen, onChoose } = useChosen({ params, setParams });
  const column = columns.find(({ position }) => position === lock?.position) ?? columns.at(-1);
  const current = column?.position ?? 0;
  const { raisers, error } = useRaisers(traced, current);
  useShare(run.name, () => ({ kind: "layers", ...prompt, ...sharedLayers(columns, traced.layers) }));
  const found = useFeeds(traced, raisers, current, chosen);
  const { layers } = found;
  if (column === undefined) return null;
  const failure = found.error ?? error;
  const shown = { column, layers, raisers, predicted };
  return (
    <div className="prompted-columns">
      <section className="prompted-main trace-pane" aria-label="Layers">
        <p className={failure === null ? "finding" : "bad finding"} role="status">
          {failure !== null && messageOf(failure)}
          {failure === null &&
            (found.cell === null ? <Raised {...shown} /> : <Feeding columns={columns} found={found} />)}
        </p>
        <div className="row wrap pane-h dim">
          <span>
            Cell: expert with the largest <Term id="traced_order">share × rarity</Term>, its activation and number
          </span>
          <RampLegend kind="sequential" low="Activation" high="largest of the layer" />
          <span>
            {found.cell === null ? "In the chosen column: the largest" : "Upper edge:"}{" "}
            <Term id="next_effect">effect on the next token</Term>
            {found.cell === null && ", on the upper edge"}
          </span>
          <span>
            <ItalicNote />
          </span>
        </div>
        <TraceTable
          {...{ columns, layers, predicted, raisers, onChoose }}
          prompt={params.prompt}
          current={column.position}
          chosen={found.cell}
          fed={found.fed?.filter(({ isClear }) => isClear)}
        />
        <div className="heat-foot">
          <Notes {...shown} columns={columns} />
        </div>
      </section>
      <NextPanel {...shown} chosen={chosen} isLocked={lock !== null} />
    </div>
  );
}
