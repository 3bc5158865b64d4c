/** The experts table, sorted and filtered on the server and loaded page by page while scrolling. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { memo, type ReactNode, useCallback, useEffect, useLayoutEffect, useMemo, useRef } from "react";
import { Link, NavigationType, useLocation, useNavigationType } from "react-router";

import { expertsQuery, writesQuery } from "@/api/queries";
import type { Column, ExpertRow } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { canBeHidden, fileValue, formatValue, inTable, isNumeric } from "@/components/experts/columns";
import { SparkHistogram } from "@/components/plots/mini-histogram";
import { useCurrentRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { SortHeader } from "@/components/table/sort-header";
import { subscribeWindowPosition, VirtualRows, windowPosition } from "@/components/table/virtual-rows";
import { ColumnTerm } from "@/components/terms/term";
import { TokenChips } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/tray-context";
import { Button } from "@/components/ui/button";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useRoom } from "@/hooks/use-size";
import { formatShare } from "@/lib/text/format";

import { type ExpertsView, orderOf, sortOf, toFilters } from "./experts-params";

/** Scroll position and URL state of the experts table, kept per run for the browser tab. */

interface TablePosition {
  /** Query string: sort, filters and search. */
  readonly search: string;
  /** Pixels from the top. */
  readonly scroll: number;
}

const key = (run: string) => `mxd-experts:${run}`;

function isTablePosition(value: unknown): value is TablePosition {
  return typeof value === "object" && value !== null && "search" in value && "scroll" in value;
}

/** null if the table has not been opened in this tab. */
export function readTablePosition(run: string): TablePosition | null {
  try {
    const stored: unknown = JSON.parse(window.sessionStorage.getItem(key(run)) ?? "null");
    return isTablePosition(stored) ? stored : null;
  } catch {
    return null;
  }
}

export function saveTablePosition(run: string, position: TablePosition): void {
  window.sessionStorage.setItem(key(run), JSON.stringify(position));
}

/** Link state that asks the table to restore its scroll position. */
export const RESTORE_POSITION = { toPlace: true } as const;

export function restoresPosition(state: unknown): boolean {
  return typeof state === "object" && state !== null && "toPlace" in state;
}

/** The run's expert with the largest value. That with the strongest activation has every measured value. */
export function useLargest(run: string, sort: "max_activation" | "recurrence"): ExpertRow | undefined {
  return useInfiniteQuery(expertsQuery(run, { sort, order: "desc" }, 1)).data?.pages[0]?.experts[0];
}

/** Without the columns of `mxd ablate` and `mxd recurrence` if they did not run. */
export function useAvailableColumns(run: string, columns: readonly Column[]): readonly Column[] {
  const isAblated = typeof useLargest(run, "max_activation")?.loss_increase === "number";
  const isCompared = typeof useLargest(run, "recurrence")?.recurrence === "number";
  return useMemo(() => {
    const isMeasured = { index: true, annotation: true, ablate: isAblated, recurrence: isCompared };
    return columns.filter((column) => inTable(column) && isMeasured[column.measured_by]);
  }, [columns, isAblated, isCompared]);
}

const LABEL_COLUMNS: Readonly<Record<string, (row: ExpertRow) => string | number>> = {
  expert: (row) => row.expert,
  label: (row) => row.label ?? "",
  automatic_label: (row) => row.automatic?.label ?? "",
  automatic_label_score: (row) => row.automatic?.balanced_accuracy ?? "",
  automatic_label_precision: (row) => row.automatic?.precision ?? "",
  automatic_label_recall: (row) => row.automatic?.recall ?? "",
};

/** Values by column for files, also of statistics without a column. The upper end of the histogram follows it. */
export function tableRow(
  row: ExpertRow,
  columns: readonly Column[],
  hidden: readonly string[],
): Readonly<Record<string, string | number>> {
  const labels = Object.entries(LABEL_COLUMNS).map(([name, read]) => [name, read(row)] as const);
  const isExported = ({ key, kind }: Column) =>
    kind === "bound" ? !hidden.includes("histogram") : !hidden.includes(key);
  const isStatistic = (column: Column) => isNumeric(column) && column.measured_by === "index";
  const isValue = (column: Column) => canBeHidden(column) || column.kind === "bound" || isStatistic(column);
  const shown = columns.filter((column) => isValue(column) && isExported(column));
  return Object.fromEntries([...labels, ...shown.map((column) => [column.key, fileValue(column, row)] as const)]);
}

const cellClass = (column: Column, sort: string) =>
  [
    `c-${column.key.replaceAll("_", "-")}`,
    ...(isNumeric(column) || column.kind === "id" ? ["num"] : []),
    ...(column.key === sort ? ["sorted"] : []),
  ].join(" ");

function LabelCell({ row }: Pick<BodyRowProps, "row">) {
  const links = usePageLinks();
  return (
    <Link to={links.expert(row.expert)}>
      <span className="mono dim" aria-hidden="true">
        {row.expert}{" "}
      </span>
      {row.active_tokens === 0 && row.label === null ? (
        <span className="dim">dead</span>
      ) : (
        <ExpertLabel label={row.label} automatic={row.automatic} topTokens={row.top_tokens} />
      )}
      {row.label === null && <span className="sr">Expert {row.expert}</span>}
    </Link>
  );
}

const FEW = { first: 5, className: "whole-chips" };

/** What steering with an expert writes, as on its page: computed while its row is on screen. */
function Promotes({ expert }: Pick<ExpertRow, "expert">) {
  const run = useCurrentRun().name ?? "";
  const { data } = useQuery(writesQuery(run, expert));
  if (data === undefined) return <span className="dim">…</span>;
  return (
    <span className={data.controls.exceeded ? "" : "dim"} title={data.controls.sentence}>
      <TokenChips tokens={data.promoted} {...FEW} />
    </span>
  );
}

/** Takes the place of the tokens that experts fire on when they are sorted by what steering with them changes. */
const promotesColumn = (column: Column): Column => ({
  ...column,
  key: "promotes",
  header: "Promotes",
  title: "Promotes",
  description:
    "Next tokens that the expert promotes, computed on its strongest examples. Grey: no more than random experts.",
});

/** Cells that are more than a number. */
const CELLS: Readonly<Record<string, (row: ExpertRow) => ReactNode>> = {
  label: (row) => <LabelCell row={row} />,
  density: ({ density }) => formatShare(density),
  top_tokens: (row) => <TokenChips tokens={row.top_tokens} {...FEW} />,
  promotes: (row) => row.active_tokens > 0 && <Promotes expert={row.expert} />,
  histogram: (row) => <SparkHistogram counts={row.histogram} label="Histogram of activations, log counts" />,
};

/** Width of a column in pixels, and the narrowest window that has room for it; labels have the rest. */
const ROOM: Readonly<Record<string, readonly [width: number, from: number]>> = {
  expert: [66, 721],
  density: [84, 721],
  max_activation: [84, 721],
  loss_increase: [136, 721],
  recurrence: [96, 1001],
  entropy: [104, 1201],
  steerability: [124, 841],
  kl_amplified: [118, 1151],
  mean_activation: [64, 1301],
  histogram: [112, 1401],
  top_tokens: [184, 1101],
  promotes: [290, 0],
  activation_per_token: [118, 1701],
};
const NUMBER = [118, 721] as const;
/** Beside effects, which are measured on demand, tokens and histograms need a wider window. */
const BESIDE_EFFECTS = 1601;
const WINDOWS = [BESIDE_EFFECTS, ...new Set(Object.values(ROOM).map(([, from]) => from))];

const isIllustration = ({ key }: Column) => key === "top_tokens" || key === "histogram";

/** Those that fit the window, and the sorted one. On phones: the label, and the number that sorts or the density. */
function fitting(columns: readonly Column[], sort: string, window: number): readonly Column[] {
  const number = columns.find((column) => column.key === sort && isNumeric(column))?.key ?? "density";
  if (window === 0) return columns.filter(({ key }) => ["label", "promotes", number].includes(key));
  const hasEffects = columns.some(({ key }) => key === "loss_increase");
  return columns.filter((column) => {
    const [, from] = ROOM[column.key] ?? [0, 0];
    if (isIllustration(column)) return window >= (hasEffects ? BESIDE_EFFECTS : from);
    return column.key === sort || window >= from;
  });
}

/** Undefined for the label. A number at the edge of the window has its distance from it. */
function widthOf(column: Column, window: number, isLast: boolean): number | undefined {
  if (column.key === "promotes") return window === 0 ? 108 : window < 1301 ? 220 : ROOM.promotes?.[0];
  if (!isNumeric(column) && ROOM[column.key] === undefined) return undefined;
  const [width] = window === 0 ? [84] : (ROOM[column.key] ?? NUMBER);
  return width + (isLast && isNumeric(column) ? 16 : 0);
}

interface LoadedRows {
  /** Number of rows loaded. */
  readonly count: number;
  readonly hasMore: boolean;
  readonly fetchMore: () => void;
}

/** Position to restore; 0 for a newly opened table. */
function useSavedPosition(run: string) {
  const location = useLocation();
  const state: unknown = location.state;
  const { search } = location;
  const kind = useNavigationType();
  const targetRef = useRef<number | null>(null);
  const isRead = useRef(false);
  useLayoutEffect(() => {
    if (isRead.current) return;
    isRead.current = true;
    const saved = kind === NavigationType.Pop || restoresPosition(state) ? readTablePosition(run) : null;
    targetRef.current = saved?.search === search ? saved.scroll : 0;
  }, [kind, run, search, state]);
  return targetRef;
}

/**
 * Saves the scroll position of the experts table and restores it after Back, a reload, or the link back from an
 * expert. Fetches pages until the saved position is reached.
 */
function useScrollRestoration(run: string, { count, hasMore, fetchMore }: LoadedRows): void {
  const { search } = useLocation();
  const wantedRef = useSavedPosition(run);
  useEffect(() => {
    if (wantedRef.current === null || count === 0) return;
    const maxScroll = document.documentElement.scrollHeight - window.innerHeight;
    if (wantedRef.current > maxScroll && hasMore) {
      fetchMore();
      return;
    }
    window.scrollTo({ top: wantedRef.current, behavior: "instant" });
    wantedRef.current = null;
  }, [count, fetchMore, hasMore, wantedRef]);
  // A layout effect, because its cleanup must run before the next page scrolls.
  useLayoutEffect(() => {
    const savePosition = () => {
      if (wantedRef.current === null) saveTablePosition(run, { search, scroll: windowPosition().top });
    };
    const cancelRestoration = () => {
      wantedRef.current = null;
    };
    const unsubscribe = subscribeWindowPosition(savePosition);
    savePosition();
    window.addEventListener("wheel", cancelRestoration, { passive: true });
    window.addEventListener("touchmove", cancelRestoration, { passive: true });
    return () => {
      unsubscribe();
      window.removeEventListener("wheel", cancelRestoration);
      window.removeEventListener("touchmove", cancelRestoration);
    };
  }, [run, search, wantedRef]);
}

interface ExpertsTableProps {
  readonly run: string;
  readonly view: ExpertsView;
}

const ROW_HEIGHT = 31;
const NARROW_ROW_HEIGHT = 44;
const NO_ROWS: ExpertRow[] = [];

function NoMatches({ view: { setParams, filters, setBounds } }: Omit<ExpertsTableProps, "run">) {
  const clear = () => {
    setParams({ search: "", token: "", among: [] }, "push");
    setBounds(Object.fromEntries(filters.map(({ name }) => [name, null])));
  };
  return (
    <EmptyState title="No matching experts">
      <Button size="small" icon="close" onClick={clear}>
        Clear search and filters
      </Button>
    </EmptyState>
  );
}

interface HeadProps extends Omit<ExpertsTableProps, "run"> {
  readonly columns: readonly Column[];
}

function Head({ view, columns }: HeadProps) {
  const { setParams } = view;
  const sort = arrowOf(sortOf(view));
  return (
    <thead>
      <tr>
        <th className="c-plus" scope="col">
          <span className="sr">Tray</span>
        </th>
        {columns.map((column) => {
          const { key, header, kind, unit, sortable, title, description } = column;
          // A number of runs needs no unit.
          const isUnitShown = unit !== null && kind !== "count";
          if (!sortable) {
            return (
              <th key={key} className={cellClass(column, sort)} scope="col">
                <ColumnTerm column={column}>{header}</ColumnTerm>
              </th>
            );
          }
          return (
            <SortHeader
              key={key}
              column={key}
              className={cellClass(column, sort)}
              definition={{ name: title, text: description }}
              sorting={{ sort, order: orderOf(view) }}
              onSort={(change) =>
                setParams((params) => {
                  const now = { ...view, params };
                  const { sort, order } = change({ sort: sortOf(now), order: orderOf(now) });
                  return { sort, order: sort === sortOf(now) ? order : "default" };
                }, "push")
              }
            >
              <span>
                {header} {isUnitShown && <span className="unit">{unit}</span>}
              </span>
            </SortHeader>
          );
        })}
      </tr>
    </thead>
  );
}

interface BodyRowProps {
  readonly row: ExpertRow;
  readonly columns: readonly Column[];
  readonly sort: string;
}

/** Memoised, so that scrolling renders new rows only. */
const BodyRow = memo(function BodyRow({ row, columns, sort }: BodyRowProps) {
  return (
    <tr>
      <td className="c-plus">
        <PlusButton expert={row.expert} />
      </td>
      {columns.map((column) => (
        <td key={column.key} className={cellClass(column, sort)}>
          {CELLS[column.key]?.(row) ?? formatValue(column, row)}
        </td>
      ))}
    </tr>
  );
});

/** The column whose arrow shows the order. */
const arrowOf = (sort: string) => (sort === "credible" ? "steerability" : sort);

/** The chosen columns that fit. */
export function useFittingColumns({ run, view }: ExpertsTableProps): readonly Column[] {
  const { hide } = view.params;
  const window = useRoom(WINDOWS);
  const available = useAvailableColumns(run, view.columns);
  const sort = arrowOf(sortOf(view));
  return useMemo(() => {
    const wanted = available.filter(({ key }) => !hide.includes(key));
    return fitting(wanted, sort, window);
  }, [available, hide, sort, window]);
}

export function ExpertsTable({ run, view }: ExpertsTableProps) {
  const query = useInfiniteQuery(expertsQuery(run, toFilters(view)));
  const { data, error, hasNextPage, isFetching, fetchNextPage, refetch } = query;
  const window = useRoom(WINDOWS);
  const sort = arrowOf(sortOf(view));
  // Not by default: it loads the language model.
  const withWrites = view.params.sort === "steerability";
  const fitted = useFittingColumns({ run, view });
  const columns = useMemo(
    () => fitted.map((column) => (column.key === "top_tokens" && withWrites ? promotesColumn(column) : column)),
    [fitted, withWrites],
  );
  const rows = useMemo(() => data?.pages.flatMap((page) => page.experts) ?? NO_ROWS, [data]);
  const onNearEnd = useCallback(() => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage]);
  useScrollRestoration(run, { count: rows.length, hasMore: hasNextPage, fetchMore: onNearEnd });
  if (error !== null && rows.length === 0) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading experts" rows={12} rowHeight={ROW_HEIGHT} />;
  if (rows.length === 0) return <NoMatches view={view} />;
  return (
    <>
      <table className="grid experts-table" aria-rowcount={data.pages[0]?.matching}>
        <colgroup>
          <col style={{ width: window === 0 ? 44 : 54 }} />
          {columns.map((column) => (
            <col key={column.key} style={{ width: widthOf(column, window, column === columns.at(-1)) }} />
          ))}
        </colgroup>
        <Head view={view} columns={columns} />
        <VirtualRows
          count={rows.length}
          rowHeight={window === 0 ? NARROW_ROW_HEIGHT : ROW_HEIGHT}
          onNearEnd={onNearEnd}
        >
          {(index) => {
            const row = rows[index];
            return row && <BodyRow key={row.expert} {...{ row, columns, sort }} />;
          }}
        </VirtualRows>
      </table>
      {hasNextPage && <LoadingState label="Loading more experts" rows={2} rowHeight={ROW_HEIGHT} />}
    </>
  );
}
