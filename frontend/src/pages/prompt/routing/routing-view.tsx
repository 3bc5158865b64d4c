/** The heat map of one routing with its controls, legend and token panel. */

import { useCallback, useMemo, useState } from "react";

import type { RoutedToken, RoutingResponse, RunSummary } from "@/api/types";
import { ItalicNote, WeakLast } from "@/components/experts/expert-link";
import { useShare } from "@/components/layout/share";
import { toCsv } from "@/components/plots/figure";
import { effectiveK } from "@/components/runs/k-slider";
import { methodName } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { hideTip } from "@/components/tokens/tip-layer";
import { TokenChip } from "@/components/tokens/token-chip";
import { ExportMenu } from "@/components/ui/action-menu";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { useShortcut } from "@/hooks/use-shortcut";
import { formatCount, formatFixed } from "@/lib/text/format";
import { FoundExpert, isContent, trustOf } from "@/pages/prompt/expert-name";

import { Filters, MoreRows, ReplacedKl, usePredictions } from "./foot";
import { HeatMap } from "./heat-map/heat-map";
import {
  cellDigits,
  type Column,
  filterByDensity,
  heatColumns,
  type HeatRow,
  heatRows,
  inGroups,
  peakOf,
  type Predicted,
  type Ranking,
  RANKINGS,
  routingTable,
  scaleEnd,
  shownRows,
  tokenFirst,
  weakLast,
} from "./heat-map/heat-rows";
import { MAX_SHARED, type RoutingLock, type RoutingState } from "./routing-params";
import { TokenPanel } from "./token/token-panel";

interface HeatBarProps extends RoutingState {
  readonly response: RoutingResponse;
  readonly predicted: Predicted;
  readonly locked: RoutedToken | undefined;
  /** Numbers of experts: visible rows of the map, and all that pass the filters. */
  readonly shown: number;
  readonly total: number;
  /** End of the colour scale. */
  readonly end: number;
}

const RANKING_NAMES = Object.entries(RANKINGS).map(([value, { name }]) => ({ value: value as Ranking, label: name }));

type FindingProps = Pick<HeatBarProps, "predicted"> & {
  readonly columns: readonly Column[];
  readonly rows: readonly HeatRow[];
};

/**
 * The finding: the most specific expert, first of those with a clear label and on a word with a meaning, and where the layer
 * changes the prediction most.
 */
function Finding({ predicted, columns, rows }: FindingProps) {
  const bySize = rows.toSorted((a, b) => RANKINGS.specific.size(b) - RANKINGS.specific.size(a));
  const columnOf = (row: HeatRow) => columns.find(({ position }) => position === peakOf(row));
  const named = bySize.filter(({ info }) => trustOf(info) > 0);
  const onContent = named.find((row) => isContent(columnOf(row)?.token.text ?? ""));
  const best = onContent ?? named[0] ?? bySize[0];
  const at = best && columnOf(best);
  const klAt = ({ position }: Column) => predicted?.[position]?.kl ?? 0;
  const [changed] = columns.toSorted((a, b) => klAt(b) - klAt(a));
  return (
    <p className="finding">
      {best !== undefined && at !== undefined && (
        <>
          On <TokenChip text={at.token.text} />, <FoundExpert info={best.info} expert={best.expert} /> fires at{" "}
          <b>{formatFixed(best.largest, 1)}</b>, with the largest score
          {onContent !== undefined && " on a content word"}
          {named.length > 0 && " among labels that are not weak"}.{" "}
        </>
      )}
      {changed !== undefined && (
        // Its place is kept until the predictions are there.
        <span style={{ visibility: predicted === undefined ? "hidden" : undefined }}>
          The layer is least exact after <TokenChip text={changed.token.text} />: <Term id="kl">KL</Term>{" "}
          {formatFixed(klAt(changed), 3)} nats.
        </span>
      )}
    </p>
  );
}

/** Header of the heat map: legend, order, ranking and download. */
function HeatBar({ response, predicted, locked, shown, total, end, params, setParams }: HeatBarProps) {
  return (
    <div className="row wrap pane-h">
      <RampLegend kind="sequential" low="Activation 0" high={formatFixed(end, Math.max(1, cellDigits(end)))} />
      <p className="heat-order dim">
        {shown < total ? `${formatCount(shown)} of ${formatCount(total)}` : formatCount(total)} experts,{" "}
        {locked !== undefined && (
          <>
            those on <TokenChip text={locked.text} /> first,{" "}
          </>
        )}
        <Term id="specificity">by {RANKINGS[params.rank].header.toLowerCase()}</Term>; <ItalicNote />
      </p>
      <span className="grow" />
      <WeakLast params={params} setParams={setParams} />
      <SegmentedControl
        label="Rank experts by"
        value={params.rank}
        onChange={(rank) => setParams({ rank })}
        segments={RANKING_NAMES}
      />
      <ExportMenu
        name="routing"
        csv={() => toCsv(routingTable(response, predicted, params.start))}
        json={() => ({ ...response, tokens: response.tokens.map((token, i) => ({ ...token, ...predicted?.[i] })) })}
      />
    </div>
  );
}

/** Token of the panel: the locked one, else the last hovered one, initially the last of the text. */
function usePreview(response: RoutingResponse, columns: readonly Column[], locked: Column | undefined) {
  const [preview, setPreview] = useState({ response, position: -1 });
  const onPreview = useCallback((position: number) => setPreview({ response, position }), [response]);
  const shown = preview.response === response ? preview.position : -1;
  const column = locked ?? columns.find(({ position }) => position === shown) ?? columns.at(-1);
  return { column, onPreview };
}

function useLock({ params, setParams }: RoutingState) {
  const { lock } = params;
  const onLock = useCallback(
    (cell: RoutingLock) => {
      // The panel shows the tooltip's content from now on.
      hideTip();
      const isSame = lock?.position === cell.position && lock.expert === cell.expert;
      setParams({ lock: isSame ? null : cell });
    },
    [lock, setParams],
  );
  useShortcut("release", () => setParams({ lock: null }), lock !== null);
  return { lock, onLock };
}

/** Columns, and ranked and filtered rows of the heat map. */
function useHeatRows(response: RoutingResponse, params: RoutingState["params"]) {
  const columns = useMemo(() => heatColumns(response, params.start), [response, params.start]);
  const all = useMemo(() => heatRows(columns, response.experts, params.rank), [columns, response, params.rank]);
  const rows = useMemo(
    () => filterByDensity(all, params.density).toSorted((a, b) => weakLast(a, b, params.mixed)),
    [all, params.density, params.mixed],
  );
  const at = params.lock?.position;
  const shown = useMemo(() => {
    const active = at === undefined ? 0 : rows.filter((row) => row.cells.has(at)).length;
    const chosen = shownRows(tokenFirst(rows, at), columns, Math.max(params.rows, active));
    return inGroups(chosen, params.rank, at ?? null, params.mixed);
  }, [rows, columns, params.rows, params.rank, params.mixed, at]);
  const end = useMemo(() => scaleEnd(rows), [rows]);
  return { columns, rows, shown, end };
}

export function RoutingView(props: RoutingState & { readonly run: RunSummary; readonly response: RoutingResponse }) {
  const { run, response, params } = props;
  const { columns, rows, shown, end } = useHeatRows(response, params);
  const prompt = { text: params.prompt, k: effectiveK(run, params.k) };
  useShare(run.name, () => ({
    kind: "routing",
    ...prompt,
    experts: shown.slice(0, MAX_SHARED).map(({ expert }) => expert),
  }));
  const predicted = usePredictions([response], prompt);
  const { lock, onLock } = useLock(props);
  const locked = columns.find(({ position }) => position === lock?.position);
  const held = locked === undefined ? null : lock;
  const { column, onPreview } = usePreview(response, columns, locked);
  return (
    <div className="prompted-columns">
      <section className="prompted-main heat-pane" aria-label="Experts by token">
        <Finding columns={columns} rows={rows} predicted={predicted} />
        <HeatBar {...props} {...{ predicted, end }} locked={locked?.token} shown={shown.length} total={rows.length} />
        <HeatMap
          {...{ columns, end, predicted }}
          rows={shown}
          ranking={params.rank}
          isMixed={params.mixed}
          lock={held}
          onLock={onLock}
          onPreview={onPreview}
        />
        <div className="row wrap heat-foot">
          <ReplacedKl
            subject={`${methodName(run.method)} spliced in at layer ${run.layer}`}
            columns={columns}
            predicted={predicted}
          />
          <Filters {...props} />
          <MoreRows hidden={rows.length - shown.length} setParams={props.setParams} />
        </div>
      </section>
      {column !== undefined && (
        <TokenPanel
          {...props}
          {...{ column, end, predicted }}
          text={prompt}
          lock={held}
          onToggle={() => onLock(held ?? { position: column.position, expert: null })}
        />
      )}
    </div>
  );
}
