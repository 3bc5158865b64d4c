/** URL parameters of the Experts page: sort, search and filters. */

import type { ExpertFilters } from "@/api/queries";
import { choiceParam, numberParam, type Param, type SetParams, textParam, type Values } from "@/hooks/use-url-state";
import { formatFixed } from "@/lib/text/format";

export const SORTS = [
  "match",
  "expert",
  "label",
  "density",
  "mean_activation",
  "max_activation",
  "entropy",
  "loss_increase",
  "kl_amplified",
  "recurrence",
] as const;
export type Sort = (typeof SORTS)[number];

/** Columns that can be hidden. */
export const OPTIONAL_COLUMNS = [
  "density",
  "mean_activation",
  "max_activation",
  "entropy",
  "loss_increase",
  "kl_amplified",
  "recurrence",
  "top_tokens",
  "histogram",
] as const;
export type OptionalColumn = (typeof OPTIONAL_COLUMNS)[number];

export const columnsParam: Param<readonly OptionalColumn[]> = {
  read: (text) => OPTIONAL_COLUMNS.filter((column) => (text ?? "").split(",").includes(column)),
  write: (columns) => (columns.length === 0 ? null : columns.join(",")),
};

/** Largest selection in the URL. With more, it would be longer than programs that share links accept. */
export const MAX_IN_URL = 300;

/** A selection of experts, by number. */
export const expertsParam: Param<readonly number[]> = {
  read: (text) => (/^\d{1,9}(,\d{1,9})*$/.test(text ?? "") ? (text ?? "").split(",").map(Number) : []),
  write: (experts) => (experts.length === 0 ? null : experts.join(",")),
};

/** Figures of the overview. */
export const VIEWS = ["density-activation", "similarity-map"] as const;
export type View = (typeof VIEWS)[number];

export const EXPERTS_PARAMS = {
  /** By default the best matches of a search, or the labels. */
  sort: choiceParam(["default", ...SORTS], "default"),
  /** By default matches and labels ascend, and numbers descend. */
  order: choiceParam(["default", "asc", "desc"], "default"),
  search: textParam(""),
  min_density: numberParam(null, { min: 0, max: 1 }),
  max_density: numberParam(null, { min: 0, max: 1 }),
  min_max_activation: numberParam(null, { min: 0 }),
  min_recurrence: numberParam(null, { min: 0 }),
  token: textParam(""),
  tag: textParam(""),
  list: numberParam(null, { min: 0 }),
  /** Experts that the table is limited to. */
  among: expertsParam,
  /** Experts selected in the figure. */
  lasso: expertsParam,
  hide: columnsParam,
  figure: choiceParam(VIEWS, "density-activation"),
};

export type ExpertsParams = Values<typeof EXPERTS_PARAMS>;
export type SetExpertsParams = SetParams<typeof EXPERTS_PARAMS>;

export function sortOf({ sort, search }: ExpertsParams): Sort {
  if (sort !== "default") return sort;
  return search.trim() === "" ? "label" : "match";
}

export function orderOf(params: ExpertsParams): "asc" | "desc" {
  if (params.order !== "default") return params.order;
  return ["label", "match"].includes(sortOf(params)) ? "asc" : "desc";
}

export interface FilterKind {
  readonly name: string;
  readonly sign: "≥" | "≤";
  readonly unit: string;
  /** Factor from the parameter's value to the displayed unit. */
  readonly scale: number;
}

export const FILTERS = {
  min_density: { name: "density", sign: "≥", unit: "%", scale: 100 },
  max_density: { name: "density", sign: "≤", unit: "%", scale: 100 },
  min_max_activation: { name: "max activation", sign: "≥", unit: "", scale: 1 },
  min_recurrence: { name: "found again", sign: "≥", unit: "times", scale: 1 },
} as const satisfies Record<string, FilterKind>;

export type FilterName = keyof typeof FILTERS;
export const FILTER_NAMES = Object.keys(FILTERS) as FilterName[];

/** A bound in its unit, with at most four decimals. */
export function formatBound(name: FilterName, value: number): string {
  const { scale } = FILTERS[name];
  return formatFixed(value * scale, 4).replace(/\.?0+$/, "");
}

/** API filters, without the unset parameters. */
export function toFilters(params: ExpertsParams): ExpertFilters {
  const bounds = FILTER_NAMES.flatMap((name) => {
    const value = params[name];
    // A number of runs is whole.
    return value === null ? [] : [[name, name === "min_recurrence" ? Math.ceil(value) : value]];
  });
  const search = params.search.trim();
  return {
    sort: sortOf(params),
    order: orderOf(params),
    ...(search === "" ? {} : { search }),
    ...(params.token === "" ? {} : { token: params.token }),
    ...(params.tag === "" ? {} : { tag: params.tag }),
    ...(params.among.length === 0 ? {} : { among: params.among.join(",") }),
    ...(params.list === null ? {} : { list: params.list }),
    ...(Object.fromEntries(bounds) as Partial<Record<FilterName, number>>),
  };
}
