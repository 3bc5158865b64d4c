/** The heat map of one routing with its controls, legend and token panel. */

import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";

import { predictionsQuery, type Prompt } from "@/api/queries";
import type { RoutingResponse, RunSummary } from "@/api/types";
import { useShare } from "@/components/layout/share";
import { effectiveK } from "@/components/runs/k-slider";
import { methodName } from "@/components/runs/run-labels";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { useTips } from "@/components/tokens/tip-layer";
import { Button } from "@/components/ui/button";
import { useShortcut } from "@/hooks/use-shortcut";
import type { SetParams, Values } from "@/hooks/use-url-state";
import { formatCount, formatFixed } from "@/lib/text/format";

import { HeatBar } from "./heat-map/heat-bar";
import type { CellPosition } from "./heat-map/heat-events";
import { HeatMap } from "./heat-map/heat-map";
import {
  cellDigits,
  type Column,
  heatColumns,
  type HeatRow,
  heatRows,
  type Predicted,
  scaleEnd,
  filterByDensity,
} from "./heat-map/heat-rows";
import { ReplacedKl } from "./replaced-kl";
import { MORE_ROWS, type ROUTING_PARAMS } from "./routing-params";
import { PlainTable } from "./table/plain-table";
import { DensityFilter, StartToken } from "./token-filters";
import { TokenPanel } from "./token/token-panel";

interface RoutingViewProps {
  readonly run: RunSummary;
  readonly response: RoutingResponse;
  readonly params: Values<typeof ROUTING_PARAMS>;
  readonly setParams: SetParams<typeof ROUTING_PARAMS>;
}

/** Token of the panel while none is locked: the last hovered one, initially the last of the text. */
function usePreview(response: RoutingResponse, columns: readonly Column[]) {
  const [preview, setPreview] = useState({ response, position: -1 });
  const onPreview = useCallback((position: number) => setPreview({ response, position }), [response]);
  const shown = preview.response === response ? preview.position : -1;
  const column = columns.find(({ position }) => position === shown) ?? columns.at(-1);
  return { column, onPreview };
}

/** Next-token distributions; undefined while loading or while they belong to another text. */
function usePredictions(response: RoutingResponse, prompt: Prompt): Predicted {
  const { data } = useQuery(predictionsQuery(response.run, prompt));
  return data?.tokens.length === response.tokens.length ? data.tokens : undefined;
}

function useLock({ params, setParams }: RoutingViewProps) {
  const { lock } = params;
  const tips = useTips();
  const onLock = useCallback(
    (cell: CellPosition) => {
      // The panel shows the tooltip's content from now on.
      tips.hide();
      const isSame = lock?.position === cell.position && lock.expert === cell.expert;
      setParams({ lock: isSame ? null : cell });
    },
    [lock, setParams, tips],
  );
  const release = () => setParams({ lock: null });
  useShortcut("release", release, lock !== null);
  return { lock, onLock, release };
}

interface FootProps extends RoutingViewProps {
  readonly rows: readonly HeatRow[];
  readonly shared: number;
  readonly end: number;
}

function Foot({ params, setParams, rows, shared, end }: FootProps) {
  const hidden = params.view === "table" ? 0 : rows.length - params.rows;
  return (
    <div className="heat-foot">
      <RampLegend kind="sequential" low="Activation 0" high={formatFixed(end, Math.max(1, cellDigits(end)))} />
      <span className="grow" />
      <StartToken params={params} setParams={setParams} />
      <DensityFilter params={params} setParams={setParams} />
      {shared > 0 && (
        <Button
          size="small"
          title="Experts active on at least half of all tokens"
          onClick={() => setParams(({ hide_shared }) => ({ hide_shared: !hide_shared }))}
        >
          {params.hide_shared ? "Show" : "Hide"} {shared} active on most tokens
        </Button>
      )}
      {hidden > 0 && (
        <Button
          size="small"
          title="Show more experts"
          onClick={() => setParams(({ rows }) => ({ rows: rows + MORE_ROWS }))}
        >
          {formatCount(hidden)} more
        </Button>
      )}
    </div>
  );
}

/** Columns, and ranked and filtered rows of the heat map. */
function useHeatRows(response: RoutingResponse, params: RoutingViewProps["params"]) {
  const columns = useMemo(() => heatColumns(response, params.start), [response, params.start]);
  const all = useMemo(() => heatRows(columns, response.experts, params.rank), [columns, response, params.rank]);
  const rows = useMemo(() => {
    const filtered = filterByDensity(all, params.density);
    return params.hide_shared ? filtered.filter((row) => !row.isShared) : filtered;
  }, [all, params.hide_shared, params.density]);
  const shown = useMemo(() => rows.slice(0, params.rows), [rows, params.rows]);
  const extra = useMemo(() => {
    const at = params.lock?.position;
    return at === undefined ? [] : rows.slice(params.rows).filter((row) => row.cells.has(at));
  }, [rows, params.rows, params.lock]);
  const end = useMemo(() => scaleEnd(rows), [rows]);
  return { columns, all, rows, shown, extra, end };
}

export function RoutingView(props: RoutingViewProps) {
  const { run, response, params } = props;
  const { columns, all, rows, shown, extra, end } = useHeatRows(response, params);
  const prompt = { text: params.prompt, k: effectiveK(run, params.k) };
  useShare(run.name, () => ({ kind: "routing", ...prompt }));
  const predicted = usePredictions(response, prompt);
  const preview = usePreview(response, columns);
  const { lock, onLock, release } = useLock(props);
  const locked = columns.find(({ position }) => position === lock?.position);
  const column = locked ?? preview.column;
  const expert = locked === undefined ? null : (lock?.expert ?? null);
  const shared = { columns, end, predicted, onLock, lock: locked === undefined ? null : lock };
  return (
    <div className="prompted-columns">
      <section className="prompted-main heat-pane" aria-label="Experts by token">
        <HeatBar {...props} predicted={predicted} shown={shown.length} total={rows.length} all={all.length} />
        <ReplacedKl
          subject={`${methodName(run.method)} spliced in at layer ${run.layer}`}
          columns={columns}
          predicted={predicted}
        />
        {params.view === "table" ? (
          <PlainTable {...shared} response={response} rows={rows} />
        ) : (
          <HeatMap {...shared} rows={shown} extra={extra} ranking={params.rank} onPreview={preview.onPreview} />
        )}
        <Foot {...props} rows={rows} shared={all.filter((row) => row.isShared).length} end={end} />
      </section>
      {column !== undefined && (
        <TokenPanel
          run={run.name}
          text={prompt}
          column={column}
          experts={response.experts}
          end={end}
          predicted={predicted}
          method={methodName(run.method)}
          isLocked={locked !== undefined}
          lockedExpert={expert}
          onRelease={release}
        />
      )}
    </div>
  );
}
