/** The places of the dashboard, each with the views that it holds. */

import type { PageName } from "@/components/runs/page-links";
import type { IconName } from "@/components/ui/icon";

export interface View {
  readonly page: PageName;
  readonly name: string;
}

export interface Place {
  readonly name: string;
  readonly icon: IconName;
  /** The place opens with the first one. */
  readonly views: readonly [View, ...View[]];
}

const PLACES: readonly Place[] = [
  { name: "Runs", icon: "runs", views: [{ page: "runs", name: "Runs" }] },
  {
    name: "Explore",
    icon: "experts",
    views: [
      { page: "experts", name: "Experts" },
      { page: "search", name: "Search" },
      { page: "contrast", name: "Contrast" },
      { page: "lists", name: "Lists" },
    ],
  },
  {
    name: "Prompt",
    icon: "routing",
    views: [
      { page: "routing", name: "Routing" },
      { page: "circuits", name: "Circuits" },
    ],
  },
  { name: "Steer", icon: "steering", views: [{ page: "steering", name: "Steering" }] },
  {
    name: "Evaluate",
    icon: "probing",
    views: [
      { page: "verdict", name: "Verdict" },
      { page: "compare", name: "Compare" },
      { page: "frontier", name: "Frontier" },
      { page: "benchmark", name: "Benchmark" },
      { page: "faithfulness", name: "Faithfulness" },
      { page: "health", name: "Expert health" },
      { page: "probing", name: "Probing" },
    ],
  },
];

interface ComparedRun {
  readonly language_model: string;
  readonly layer: number;
  readonly k: number;
  readonly min_k: number | null;
  /** The K at which it was evaluated. */
  readonly evaluated_k: readonly number[];
}

/** Whether one MLP is replaced at two K, by two runs or by one trained for or evaluated at several K. */
export function hasFrontier(runs: readonly ComparedRun[]): boolean {
  const values = new Map<string, Set<number>>();
  for (const { language_model, layer, k, min_k: smallest, evaluated_k: evaluated } of runs) {
    const mlp = `${layer} of ${language_model}`;
    values.set(mlp, new Set([...(values.get(mlp) ?? []), k, smallest ?? k, ...evaluated]));
  }
  return [...values.values()].some(({ size }) => size > 1);
}

/** The places without views that would be empty. */
export function placesOf(runs: readonly ComparedRun[]): readonly Place[] {
  if (hasFrontier(runs)) return PLACES;
  return PLACES.map((place) => {
    const [first, ...others] = place.views;
    return { ...place, views: [first, ...others.filter(({ page }) => page !== "frontier")] };
  });
}

/** The place of an address, from its first part; null for Home, the glossary and missing pages. */
export function placeOf(pathname: string, places: readonly Place[]): Place | null {
  const section = pathname.split("/")[1];
  return places.find(({ views }) => views.some(({ page }) => page === section)) ?? null;
}
