/** URL parameters of the Experts page: sort, search and filters. */

import type { ExpertFilters } from "@/api/queries";
import type { Column } from "@/api/types";
import { choiceParam, numberParam, type Param, type SetParams, textParam, type Values } from "@/hooks/use-url-state";
import type { Filter } from "@/components/experts/columns";

const listParam: Param<readonly string[]> = {
  read: (text) => (text ?? "").split(",").filter((key) => key !== ""),
  write: (keys) => (keys.length === 0 ? null : keys.join(",")),
};

/** Largest selection in the URL. With more, it would be longer than programs that share links accept. */
export const MAX_IN_URL = 300;

/** A selection of experts, by number. */
const expertsParam: Param<readonly number[]> = {
  read: (text) => (/^\d{1,9}(,\d{1,9})*$/.test(text ?? "") ? (text ?? "").split(",").map(Number) : []),
  write: (experts) => (experts.length === 0 ? null : experts.join(",")),
};

export const EXPERTS_PARAMS = {
  /** A sortable column, `match` or `credible`. By default the best matches of a search, else the most credible labels. */
  sort: textParam("default"),
  /** By default matches and labels ascend, and numbers descend. */
  order: choiceParam(["default", "asc", "desc"], "default"),
  search: textParam(""),
  token: textParam(""),
  tag: textParam(""),
  list: numberParam(null, { min: 0 }),
  /** Experts that the table is limited to. */
  among: expertsParam,
  /** Experts selected in the figure. */
  lasso: expertsParam,
  /** Columns that are not shown. */
  hide: listParam,
};

type ExpertsParams = Values<typeof EXPERTS_PARAMS>;
/** Values of the filters by name. */
export type Bounds = Readonly<Record<string, number | null>>;

/** One parameter per filter. */
export function boundParams(filters: readonly Filter[]): Readonly<Record<string, Param<number | null>>> {
  const range = ({ column }: Filter) => (column.kind === "share" ? { min: 0, max: 1 } : { min: 0 });
  return Object.fromEntries(filters.map((filter) => [filter.name, numberParam(null, range(filter))]));
}

/** What the parts of the page share: the columns and filters, and the state in the URL. */
export interface ExpertsView {
  readonly columns: readonly Column[];
  readonly filters: readonly Filter[];
  /** Whether the steerability of the run's experts is known. */
  readonly isSteerable: boolean;
  readonly params: ExpertsParams;
  readonly setParams: SetParams<typeof EXPERTS_PARAMS>;
  readonly bounds: Bounds;
  readonly setBounds: (bounds: Bounds, history?: "push" | "replace") => void;
}

export type Sorted = Pick<ExpertsView, "columns" | "params" | "isSteerable">;

export function sortOf({ columns, isSteerable, params: { sort, search } }: Sorted): string {
  if (sort === "match" || sort === "credible" || columns.some((column) => column.sortable && column.key === sort))
    return sort;
  if (search.trim() !== "") return "match";
  return isSteerable ? "credible" : "label";
}

export function orderOf(view: Sorted): "asc" | "desc" {
  if (view.params.order !== "default") return view.params.order;
  return ["label", "match"].includes(sortOf(view)) ? "asc" : "desc";
}

/** API filters, without the unset parameters. */
export function toFilters(view: Sorted & Pick<ExpertsView, "filters" | "bounds">): ExpertFilters {
  const { params } = view;
  const bounds = view.filters.flatMap(({ name, column }) => {
    const value = view.bounds[name] ?? null;
    return value === null ? [] : [[name, column.kind === "count" ? Math.ceil(value) : value]];
  });
  const search = params.search.trim();
  return {
    sort: sortOf(view) as NonNullable<ExpertFilters["sort"]>,
    order: orderOf(view),
    ...(search === "" ? {} : { search }),
    ...(params.token === "" ? {} : { token: params.token }),
    ...(params.tag === "" ? {} : { tag: params.tag }),
    ...(params.among.length === 0 ? {} : { among: params.among.join(",") }),
    ...(params.list === null ? {} : { list: params.list }),
    ...(Object.fromEntries(bounds) as ExpertFilters),
  };
}
