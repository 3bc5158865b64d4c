/** Measures an edit at several strengths in one request. */

import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError, messageOf } from "@/api/http/errors";
import { streamDose } from "@/api/http/stream";
import type { DoseDoneEvent, SteeringRequest } from "@/api/types";
import type { Edit } from "@/lib/edits/edits";

import { doseKey, type SweepMode, doseRequest } from "./dose";

export interface Sweep {
  readonly status: "idle" | "measuring" | "done" | "failed";
  /** Cache key of the measured request. */
  readonly key: string;
  readonly result: DoseDoneEvent | null;
  /** Progress, from 0 to 1. */
  readonly share: number;
  /** Number of requests queued before this one. */
  readonly before: number;
  readonly failure: string | null;
}

const NO_SWEEP: Sweep = { status: "idle", key: "", result: null, share: 0, before: 0, failure: null };

export function useDose(run: string) {
  const [sweep, setSweep] = useState<Sweep>(NO_SWEEP);
  const controllerRef = useRef<AbortController | null>(null);
  const measure = useCallback(
    async (request: SteeringRequest, edit: Edit & { readonly mode: SweepMode }) => {
      controllerRef.current?.abort();
      const controller = new AbortController();
      controllerRef.current = controller;
      const key = doseKey(request, edit);
      setSweep({ ...NO_SWEEP, status: "measuring", key });
      try {
        for await (const event of streamDose(run, doseRequest(request, edit), controller.signal)) {
          if (controller.signal.aborted) return;
          if (event.event === "error") throw new ApiError(event.error.code, event.error.message, 0);
          if (event.event === "done") setSweep({ ...NO_SWEEP, status: "done", key, result: event, share: 1 });
          else {
            const share = event.total === 0 ? 0 : event.tokens / event.total;
            setSweep((old) => ({ ...old, share, before: event.queue_position }));
          }
        }
      } catch (error) {
        if (!controller.signal.aborted) {
          setSweep({ ...NO_SWEEP, status: "failed", key, failure: messageOf(error) });
        }
      }
    },
    [run],
  );
  useEffect(() => () => controllerRef.current?.abort(), []);
  return { sweep, measure };
}
