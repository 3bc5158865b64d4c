/** The experts table, sorted and filtered on the server and loaded page by page while scrolling. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { lazy, memo, type ReactNode, Suspense, useCallback, useMemo, useState } from "react";

import { expertsQuery } from "@/api/queries";
import type { ExpertRow } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { SortHeader } from "@/components/table/sort-header";
import { VirtualRows } from "@/components/table/virtual-rows";
import { Term } from "@/components/terms/term";
import { Button } from "@/components/ui/button";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useIsNarrow } from "@/hooks/use-is-narrow";
import { visibleText } from "@/lib/text/token-text";
import {
  formatBound,
  type ExpertsParams,
  FILTER_NAMES,
  FILTERS,
  orderOf,
  type SetExpertsParams,
  type Sort,
  sortOf,
  toFilters,
} from "@/pages/explore/experts/experts-params";

import { CELLS, type Column, type ColumnHeader, HEADERS } from "./columns";
import { useAvailableColumns, useStrongest } from "./use-available-columns";
import { useScrollRestoration } from "./use-scroll-restoration";

/** Lazy, because only narrow screens need it. */
const RowSheet = lazy(() => import("./row-sheet"));

interface ExpertsTableProps {
  readonly run: string;
  readonly params: ExpertsParams;
  readonly setParams: SetExpertsParams;
}

const ROW_HEIGHT = 31;
const NARROW_ROW_HEIGHT = 44;
const NO_ROWS: ExpertRow[] = [];

function NoMatches({ params, setParams }: Omit<ExpertsTableProps, "run">) {
  return (
    <EmptyState title="No matching experts">
      {params.search !== "" && (
        <Button size="small" icon="close" onClick={() => setParams({ search: "" }, "push")}>
          Clear search “{params.search}”
        </Button>
      )}{" "}
      {params.token !== "" && (
        <Button size="small" icon="close" onClick={() => setParams({ token: "" }, "push")}>
          Clear token “{visibleText(params.token)}”
        </Button>
      )}{" "}
      {FILTER_NAMES.map((name) => {
        const value = params[name];
        if (value === null) return null;
        const { name: label, sign, unit } = FILTERS[name];
        return (
          <Button key={name} size="small" icon="close" onClick={() => setParams({ [name]: null }, "push")}>
            Clear {label} {sign} {formatBound(name, value)} {unit}
          </Button>
        );
      })}
    </EmptyState>
  );
}

function HeaderTitle({ header, children }: { readonly header: ColumnHeader; readonly children: ReactNode }) {
  return header.term === undefined ? children : <Term id={header.term}>{children}</Term>;
}

interface HeadProps extends Omit<ExpertsTableProps, "run"> {
  readonly columns: readonly Column[];
}

function Head({ params, setParams, columns }: HeadProps) {
  return (
    <thead>
      <tr>
        {columns.map((id) => {
          const header = HEADERS[id];
          const title = (
            <span>
              {header.title} {header.unit !== undefined && <span className="unit">{header.unit}</span>}
            </span>
          );
          if (header.sort === undefined) {
            return (
              <th key={id} className={header.className} scope="col">
                {header.title === "" ? (
                  <span className="sr">Tray</span>
                ) : (
                  <HeaderTitle header={header}>{title}</HeaderTitle>
                )}
              </th>
            );
          }
          return (
            <SortHeader<Sort>
              key={id}
              column={header.sort}
              className={header.className}
              term={header.term}
              sorting={{ key: sortOf(params), order: orderOf(params) }}
              onSort={({ key, order }) =>
                setParams({ sort: key, order: key === sortOf(params) ? order : "default" }, "push")
              }
            >
              {title}
            </SortHeader>
          );
        })}
      </tr>
    </thead>
  );
}

interface BodyRowProps {
  readonly row: ExpertRow;
  readonly largest: number;
  readonly columns: readonly Column[];
  /** Set on narrow screens, where a row opens a sheet. */
  readonly onOpen?: (row: ExpertRow) => void;
}

/** Memoised, so that scrolling renders new rows only. */
const BodyRow = memo(function BodyRow({ row, largest, columns, onOpen }: BodyRowProps) {
  return (
    <tr>
      {columns.map((id) => (
        <td key={id} className={HEADERS[id].className}>
          {onOpen !== undefined && id === "label" ? (
            <button type="button" className="row-open" onClick={() => onOpen(row)}>
              <span className="mono dim">{row.expert}</span>{" "}
              {row.active_tokens === 0 && row.label === null ? (
                <span className="dim">dead</span>
              ) : (
                <ExpertLabel label={row.label} automatic={row.automatic} />
              )}
            </button>
          ) : (
            CELLS[id](row, largest)
          )}
        </td>
      ))}
    </tr>
  );
});

export function ExpertsTable({ run, params, setParams }: ExpertsTableProps) {
  const query = useInfiniteQuery(expertsQuery(run, toFilters(params)));
  const { data, error, hasNextPage, isFetching, fetchNextPage, refetch } = query;
  const isNarrow = useIsNarrow();
  const [opened, setOpened] = useState<ExpertRow | null>(null);
  const strongest = useStrongest(run);
  const largest = strongest?.max_activation ?? 0;
  const available = useAvailableColumns(run);
  const columns = useMemo(
    () => available.filter((column) => !params.hide.some((hidden) => hidden === column)),
    [available, params.hide],
  );
  const rows = useMemo(() => data?.pages.flatMap((page) => page.experts) ?? NO_ROWS, [data]);
  const onNearEnd = useCallback(() => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage]);
  useScrollRestoration(run, { count: rows.length, hasMore: hasNextPage, fetchMore: onNearEnd });
  if (error !== null && rows.length === 0) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading experts" rows={12} rowHeight={ROW_HEIGHT} />;
  if (rows.length === 0) return <NoMatches params={params} setParams={setParams} />;
  return (
    <>
      <table className="grid experts-table" aria-rowcount={data.pages[0]?.matching}>
        <Head params={params} setParams={setParams} columns={columns} />
        <VirtualRows count={rows.length} rowHeight={isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT} onNearEnd={onNearEnd}>
          {(index) => {
            const row = rows[index];
            const openProps = isNarrow && { onOpen: setOpened };
            return row && <BodyRow key={row.expert} row={row} largest={largest} columns={columns} {...openProps} />;
          }}
        </VirtualRows>
      </table>
      {hasNextPage && <LoadingState label="Loading more experts" rows={2} rowHeight={ROW_HEIGHT} />}
      {isNarrow && (
        <Suspense>
          <RowSheet row={opened} onClose={() => setOpened(null)} />
        </Suspense>
      )}
    </>
  );
}
