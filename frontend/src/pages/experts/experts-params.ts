/** What the address of the experts page holds: sort, search and filters. */

import type { ExpertFilters } from "@/api/queries";
import { formatFixed } from "@/lib/format";
import { choiceParam, numberParam, type Param, type SetParams, textParam, type Values } from "@/url-state";

export const SORTS = ["expert", "label", "usage", "mean", "largest", "entropy", "added_loss", "kl_up"] as const;
export type Sort = (typeof SORTS)[number];

/** Columns that may be hidden. */
export const OPTIONAL_COLUMNS = [
  "usage",
  "mean",
  "largest",
  "entropy",
  "added_loss",
  "kl_up",
  "top_tokens",
  "histogram",
] as const;
export type OptionalColumn = (typeof OPTIONAL_COLUMNS)[number];

export const columnsParam: Param<readonly OptionalColumn[]> = {
  read: (text) => OPTIONAL_COLUMNS.filter((column) => (text ?? "").split(",").includes(column)),
  write: (columns) => (columns.length === 0 ? null : columns.join(",")),
};

/** What a lasso holds: experts by number. */
export const expertsParam: Param<readonly number[]> = {
  read: (text) => (/^\d{1,9}(,\d{1,9})*$/.test(text ?? "") ? (text ?? "").split(",").map(Number) : []),
  write: (experts) => (experts.length === 0 ? null : experts.join(",")),
};

/** What the overview shows. */
export const VIEWS = ["usage-strength", "similarity-map"] as const;
export type View = (typeof VIEWS)[number];

export const EXPERTS_PARAMS = {
  sort: choiceParam(SORTS, "largest"),
  order: choiceParam(["asc", "desc"], "desc"),
  search: textParam(""),
  min_usage: numberParam(null, { min: 0, max: 1 }),
  max_usage: numberParam(null, { min: 0, max: 1 }),
  min_largest: numberParam(null, { min: 0 }),
  token: textParam(""),
  tag: textParam(""),
  list: numberParam(null, { min: 0 }),
  among: expertsParam,
  hide: columnsParam,
  figure: choiceParam(VIEWS, "usage-strength"),
};

export type ExpertsParams = Values<typeof EXPERTS_PARAMS>;
export type SetExpertsParams = SetParams<typeof EXPERTS_PARAMS>;

export interface FilterKind {
  readonly name: string;
  readonly sign: "≥" | "≤";
  readonly unit: string;
  /** How many of the unit make one of the parameter. */
  readonly scale: number;
}

export const FILTERS = {
  min_usage: { name: "usage", sign: "≥", unit: "%", scale: 100 },
  max_usage: { name: "usage", sign: "≤", unit: "%", scale: 100 },
  min_largest: { name: "largest", sign: "≥", unit: "", scale: 1 },
} as const satisfies Record<string, FilterKind>;

export type FilterName = keyof typeof FILTERS;
export const FILTER_NAMES = Object.keys(FILTERS) as FilterName[];

/** A bound in its unit, with as many digits as it has, at most four. */
export function boundText(name: FilterName, value: number): string {
  const { scale } = FILTERS[name];
  return formatFixed(value * scale, 4).replace(/\.?0+$/, "");
}

/** The request: only what is set. */
export function toFilters(params: ExpertsParams): ExpertFilters {
  const bounds = FILTER_NAMES.filter((name) => params[name] !== null).map((name) => [name, params[name]]);
  const search = params.search.trim();
  return {
    sort: params.sort,
    order: params.order,
    ...(search === "" ? {} : { search }),
    ...(params.token === "" ? {} : { token: params.token }),
    ...(params.tag === "" ? {} : { tag: params.tag }),
    ...(params.among.length === 0 ? {} : { among: params.among.join(",") }),
    ...(params.list === null ? {} : { list: params.list }),
    ...(Object.fromEntries(bounds) as Partial<Record<FilterName, number>>),
  };
}
