/** The experts, sorted and filtered by the server, a page at a time as one scrolls. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { lazy, memo, Suspense, useCallback, useMemo, useState } from "react";

import { expertsQuery } from "@/api/queries";
import type { ExpertRow } from "@/api/types";
import { Button } from "@/components/button";
import { ExpertLabel } from "@/components/expert-ref";
import { useIsNarrow } from "@/components/media";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";
import { SortHeader } from "@/components/table/sort-header";
import { VirtualRows } from "@/components/table/virtual-rows";

import { visibleText } from "@/lib/token-text";

import { CELLS, LOOKS } from "./columns";
import {
  boundText,
  type ExpertsParams,
  FILTER_NAMES,
  FILTERS,
  type SetExpertsParams,
  type Sort,
  toFilters,
} from "./experts-params";
import { usePlace } from "./use-place";

/** Only narrow screens open it. */
const RowSheet = lazy(() => import("./row-sheet"));

interface ExpertsTableProps {
  readonly run: string;
  readonly params: ExpertsParams;
  readonly setParams: SetExpertsParams;
}

const ROW_HEIGHT = 31;
const NARROW_ROW_HEIGHT = 44;
const NO_ROWS: ExpertRow[] = [];

function NoneFound({ params, setParams }: Omit<ExpertsTableProps, "run">) {
  return (
    <EmptyState title="No expert fits">
      {params.search !== "" && (
        <Button size="small" icon="close" onClick={() => setParams({ search: "" }, "push")}>
          Drop the search for “{params.search}”
        </Button>
      )}{" "}
      {params.token !== "" && (
        <Button size="small" icon="close" onClick={() => setParams({ token: "" }, "push")}>
          Drop fires on “{visibleText(params.token)}”
        </Button>
      )}{" "}
      {FILTER_NAMES.map((name) => {
        const value = params[name];
        if (value === null) return null;
        const { name: word, sign, unit } = FILTERS[name];
        return (
          <Button key={name} size="small" icon="close" onClick={() => setParams({ [name]: null }, "push")}>
            Drop {word} {sign} {boundText(name, value)} {unit}
          </Button>
        );
      })}
    </EmptyState>
  );
}

interface HeadProps extends Omit<ExpertsTableProps, "run"> {
  readonly hidden: readonly string[];
}

function Head({ params, setParams, hidden }: HeadProps) {
  return (
    <thead>
      <tr>
        {Object.entries(LOOKS).map(([id, look]) => {
          if (hidden.includes(id)) return null;
          const title = (
            <span>
              {look.title} {look.unit !== undefined && <span className="unit">{look.unit}</span>}
            </span>
          );
          if (look.sort === undefined) {
            return (
              <th key={id} className={look.className} scope="col">
                {look.title === "" ? <span className="sr">Tray</span> : title}
              </th>
            );
          }
          return (
            <SortHeader<Sort>
              key={id}
              column={look.sort}
              className={look.className}
              sorting={{ key: params.sort, order: params.order }}
              onSort={(sorting) => setParams({ sort: sorting.key, order: sorting.order }, "push")}
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
  readonly hidden: readonly string[];
  /** Given on narrow screens, where a row opens a sheet. */
  readonly onOpen?: (row: ExpertRow) => void;
}

/** Made once: scrolling only makes the rows that come into sight. */
const BodyRow = memo(function BodyRow({ row, largest, hidden, onOpen }: BodyRowProps) {
  return (
    <tr>
      {Object.entries(LOOKS).map(([id, look]) =>
        hidden.includes(id) ? null : (
          <td key={id} className={look.className}>
            {onOpen !== undefined && id === "label" ? (
              <button type="button" className="row-open" onClick={() => onOpen(row)}>
                <span className="mono dim">{row.expert}</span>{" "}
                {row.active_tokens === 0 && row.label === null ? (
                  <span className="dim">never active</span>
                ) : (
                  <ExpertLabel label={row.label} automatic={row.automatic} />
                )}
              </button>
            ) : (
              CELLS[id]?.(row, largest)
            )}
          </td>
        ),
      )}
    </tr>
  );
});

/** The expert with the largest coefficient of the run: shades mean the same on every page of the table. */
function useStrongest(run: string): ExpertRow | undefined {
  const { data } = useInfiniteQuery(expertsQuery(run, { sort: "largest", order: "desc" }, 1));
  return data?.pages[0]?.experts[0];
}

/** Columns of what `mxd influence` measures. */
const MEASURED = ["added_loss", "kl_up"] as const;

export function ExpertsTable({ run, params, setParams }: ExpertsTableProps) {
  const query = useInfiniteQuery(expertsQuery(run, toFilters(params)));
  const { data, error, hasNextPage, isFetching, fetchNextPage, refetch } = query;
  const isNarrow = useIsNarrow();
  const [opened, setOpened] = useState<ExpertRow | null>(null);
  const strongest = useStrongest(run);
  const largest = strongest?.largest ?? 0;
  const isMeasured = strongest?.measured === true;
  const hidden = useMemo(
    () => (isMeasured ? params.hide : [...params.hide, ...MEASURED]) as readonly string[],
    [isMeasured, params.hide],
  );
  const rows = useMemo(() => data?.pages.flatMap((page) => page.experts) ?? NO_ROWS, [data]);
  const onNearEnd = useCallback(() => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage]);
  usePlace(run, { count: rows.length, hasMore: hasNextPage, fetchMore: onNearEnd });
  if (error !== null && rows.length === 0) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the experts" rows={12} rowHeight={ROW_HEIGHT} />;
  if (rows.length === 0) return <NoneFound params={params} setParams={setParams} />;
  return (
    <>
      <table className="grid experts-table" aria-rowcount={data.pages[0]?.matching}>
        <Head params={params} setParams={setParams} hidden={hidden} />
        <VirtualRows count={rows.length} rowHeight={isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT} onNearEnd={onNearEnd}>
          {(index) => {
            const row = rows[index];
            const opens = isNarrow && { onOpen: setOpened };
            return row && <BodyRow key={row.expert} row={row} largest={largest} hidden={hidden} {...opens} />;
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
