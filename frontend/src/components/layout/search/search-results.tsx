/** Search hits while typing, and how a hit is shown. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { healthQuery, searchQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { pickLayerRuns } from "@/components/runs/page-links";
import { useDebouncedValue } from "@/hooks/use-values";

const BEFORE = 24;
const AFTER = 70;

const collapseSpaces = (text: string) => text.replace(/\s+/g, " ");

/** The first match of the phrase or one of its words, ignoring case; the beginning of the text if there is none. */
export function excerpt(text: string, query: string, before = BEFORE) {
  const flat = collapseSpaces(text);
  const lower = flat.toLowerCase();
  const needles = [collapseSpaces(query.trim()), ...query.trim().split(/\s+/)].filter((word) => word !== "");
  const needle = needles.find((word) => lower.includes(word.toLowerCase()));
  if (needle === undefined) return { before: "", match: "", after: flat.slice(0, BEFORE + AFTER) };
  const at = lower.indexOf(needle.toLowerCase());
  const from = Math.max(0, at - before);
  return {
    before: from > 0 ? `… ${flat.slice(from, at).replace(/^\S*\s/, "")}` : flat.slice(0, at).trimStart(),
    match: flat.slice(at, at + needle.length),
    after: flat.slice(at + needle.length, at + needle.length + AFTER),
  };
}

/** The expert whose number was typed, as in `46`, `#46` or `expert 46`; null for other text. */
export function typedExpert(text: string, numExperts: number): number | null {
  const digits = /^(?:expert\s*|#)?(\d{1,9})$/i.exec(text.trim())?.[1];
  return digits !== undefined && Number(digits) < numExperts ? Number(digits) : null;
}

/** What was searched without success. */
export function noMatchText(text: string): string {
  const isNumber = typedExpert(text, Infinity) !== null;
  return `No label, top token or top example contains “${text}”${isNumber ? ", and no expert has this number" : ""}.`;
}

/** Search hits of a text while it is typed. */
export function useSearchHits(text: string, runs: readonly string[]) {
  const debounced = useDebouncedValue(text.trim());
  const query = useQuery(searchQuery(runs, debounced));
  return { hits: debounced === "" ? [] : (query.data?.hits ?? []), debounced, query };
}

/** The current run, then one run per other layer of its language model. */
export function useLayerRuns(): readonly RunSummary[] {
  const { runs, summary } = useCurrentRun();
  return useMemo(() => {
    if (summary === null) return [];
    const others = runs.filter(
      ({ layer, language_model_name: model, indexed_tokens: tokens }) =>
        layer !== summary.layer && model === summary.language_model_name && tokens !== null,
    );
    const names = pickLayerRuns(summary, others);
    return [summary, ...names.flatMap((name) => others.filter((other) => other.name === name))];
  }, [summary, runs]);
}

/** Milliseconds without a change before the model computes related words. */
const RELATED_AFTER_MS = 600;
/** Maximum of the server. */
export const MAX_HITS = 100;

/**
 * Hits in all layers, the best first. Until those of words that the language model relates to the text are known, only
 * those that surely match: related words change the others. `isAsked`: whether the language model is loaded for it.
 */
export function useLayerHits(text: string, isAsked: boolean) {
  const layers = useLayerRuns();
  const runs = layers.flatMap(({ name, indexed_tokens: tokens }) => (tokens === null ? [] : [name]));
  const { hits, ...found } = useSearchHits(text, runs);
  const settled = useDebouncedValue(text.trim(), RELATED_AFTER_MS);
  const { data: health } = useQuery(healthQuery);
  const isComputed = isAsked || health?.language_models.some(({ name }) => name === layers[0]?.language_model_name);
  const settledText = isComputed === true && settled === text.trim() ? settled : "";
  const related = useQuery(searchQuery(runs, settledText, "related", MAX_HITS));
  const isWaiting = isComputed === true && text.trim() !== "" && related.data === undefined && related.error === null;
  const sure = hits.filter((hit) => hit.is_named || hit.matched === "id" || hit.matching_examples > 0);
  return { ...found, hits: related.data?.hits ?? (isWaiting ? sure : hits), layers, related, isWaiting };
}
