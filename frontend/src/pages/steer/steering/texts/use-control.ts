/** The control of the steered texts: the same edits of random experts of similar density, generated after them. */

import { useQueries } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

import { expertQuery } from "@/api/queries";
import type { RunSummary, SessionResult, SteeringRequest } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { type Edit, editKey, toHttpEdit } from "@/lib/edits/edits";
import { requestEdits } from "@/pages/steer/steering/steering-params";

import { type Control, type Generation, isRunning, storedGeneration, useGeneration } from "./generation";

/** The edits with random experts in place of their own: none before these are known, null if there are too few. */
function useControlEdits(run: RunSummary, edits: readonly Edit[]): readonly Edit[] | null {
  const { runs } = useCurrentRun();
  const isIndexed = (name: string) => runs.some((one) => one.name === name && one.indexed_tokens !== null);
  const queries = edits.map(({ run: name = run.name, expert }) => ({
    ...expertQuery(name, expert),
    enabled: isIndexed(name),
  }));
  const found = useQueries({ queries });
  if (edits.length > 0 && found.some(({ isLoading }) => isLoading)) return [];
  const others = found.flatMap(({ data }, i): Edit[] => {
    const [edit, expert] = [edits[i], data?.random_expert];
    return edit === undefined || expert == null ? [] : [{ ...edit, expert }];
  });
  const isDistinct = new Set([...edits, ...others].map(editKey)).size === 2 * edits.length;
  return edits.length > 0 && isDistinct ? others : null;
}

interface Main {
  /** The texts that the control is of. */
  readonly generation: Generation;
  /** How the page shows generated texts. */
  readonly shownAs: (texts: Generation) => Generation;
  readonly isDone: () => boolean;
  /** Those of the open session, which may have a control. */
  readonly stored: SessionResult | null;
}

export function useControl(run: RunSummary, edits: readonly Edit[], request: SteeringRequest, main: Main) {
  const { generation, start, stop, clear } = useGeneration(run.name);
  const others = useControlEdits(run, edits);
  const body = others?.length ? { ...request, edits: others.map(toHttpEdit) } : null;
  const key = JSON.stringify(body);
  const started = useRef("");
  const begin = () => {
    started.current = key;
    if (body !== null) start(body);
  };
  useEffect(() => {
    if (body !== null && started.current !== key && main.isDone()) begin();
  });
  /** Before new texts of the same prompt or of another one. */
  const end = (isSamePrompt: boolean) => {
    started.current = "";
    if (isSamePrompt) stop();
    else clear();
  };
  const { control: kept, control_edits: keptEdits = [], control_figures: figures = null } = main.stored ?? {};
  if (kept != null) {
    const texts = storedGeneration({ baseline: [], steered: kept, figures });
    return { control: { edits: requestEdits(keptEdits), generation: texts }, end, onControl: null };
  }
  const isOutdated = generation.isOutdated || isRunning(main.generation);
  // A session that was saved without a control has none until its texts are generated again.
  const isShown = others !== null && (main.stored === null || generation.status !== "idle");
  const shown = main.shownAs({ ...generation, isOutdated });
  const control: Control | null = isShown ? { edits: others, generation: shown } : null;
  /** Generates the texts that a session does not store; null if there are none to generate. */
  const onControl = main.stored !== null && body !== null && control === null ? begin : null;
  return { control, end, onControl };
}
