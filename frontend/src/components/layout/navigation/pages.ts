/** The pages in the sidebar and in the tabs of narrow screens, in groups. */

import type { PageName } from "@/components/runs/page-links";
import type { IconName } from "@/components/ui/icon";

export interface PageEntry {
  readonly page: PageName;
  readonly name: string;
  readonly icon: IconName;
}

export interface PageGroup {
  readonly name: string;
  readonly icon: IconName;
  readonly pages: readonly PageEntry[];
}

export const GENERAL_PAGES: readonly PageEntry[] = [
  { page: "home", name: "Home", icon: "home" },
  { page: "runs", name: "Runs", icon: "runs" },
];

const PAGE_GROUPS: readonly PageGroup[] = [
  {
    name: "Explore",
    icon: "experts",
    pages: [
      { page: "experts", name: "Experts", icon: "experts" },
      { page: "search", name: "Search", icon: "search" },
      { page: "contrast", name: "Contrast", icon: "contrast" },
      { page: "lists", name: "Lists", icon: "list" },
    ],
  },
  {
    name: "Prompt",
    icon: "routing",
    pages: [
      { page: "routing", name: "Routing", icon: "routing" },
      { page: "circuits", name: "Circuits", icon: "circuits" },
    ],
  },
  { name: "Steer", icon: "steering", pages: [{ page: "steering", name: "Steering", icon: "steering" }] },
  {
    name: "Evaluate",
    icon: "probing",
    pages: [
      { page: "compare", name: "Compare", icon: "compare" },
      { page: "frontier", name: "Frontier", icon: "frontier" },
      { page: "benchmark", name: "Benchmark", icon: "benchmark" },
      { page: "faithfulness", name: "Faithfulness", icon: "faithfulness" },
      { page: "health", name: "Expert health", icon: "health" },
      { page: "probing", name: "Probing", icon: "probing" },
      { page: "privacy", name: "Privacy", icon: "privacy" },
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

/** The groups without pages that would be empty. */
export function pageGroups(runs: readonly ComparedRun[]): readonly PageGroup[] {
  if (hasFrontier(runs)) return PAGE_GROUPS;
  return PAGE_GROUPS.map((group) => ({ ...group, pages: group.pages.filter(({ page }) => page !== "frontier") }));
}

export const GLOSSARY_PAGE: PageEntry = { page: "glossary", name: "Glossary", icon: "book" };
