/** Measures an edit at several strengths in one request. */

import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError, messageOf } from "@/api/http/errors";
import { streamDose } from "@/api/http/stream";
import type { DoseDoneEvent, SteeringRequest } from "@/api/types";
import type { Edit } from "@/lib/edits/edits";

import { doseKey, type SweepMode, dosePoints, type DosePoint, doseRequest } from "./dose";

export interface Doses {
  readonly status: "idle" | "measuring" | "done" | "failed";
  /** Cache key of the measured request. */
  readonly key: string;
  readonly points: readonly DosePoint[];
  /** Progress, from 0 to 1. */
  readonly share: number;
  /** Number of requests queued before this one. */
  readonly before: number;
  readonly suggested: number | null;
  readonly promoted: readonly string[];
  readonly failure: string | null;
}

const NO_DOSES: Doses = {
  status: "idle",
  key: "",
  points: [],
  share: 0,
  before: 0,
  suggested: null,
  promoted: [],
  failure: null,
};

function measuredDoses(key: string, done: DoseDoneEvent): Doses {
  const { suggested, promoted } = done;
  return { ...NO_DOSES, status: "done", key, points: dosePoints(done), share: 1, suggested, promoted };
}

export function useDose(run: string) {
  const [doses, setDoses] = useState<Doses>(NO_DOSES);
  const controllerRef = useRef<AbortController | null>(null);
  const measure = useCallback(
    async (request: SteeringRequest, edit: Edit & { readonly mode: SweepMode }) => {
      controllerRef.current?.abort();
      const controller = new AbortController();
      controllerRef.current = controller;
      const key = doseKey(request, edit);
      setDoses({ ...NO_DOSES, status: "measuring", key });
      try {
        for await (const event of streamDose(run, doseRequest(request, edit), controller.signal)) {
          if (controller.signal.aborted) return;
          if (event.event === "error") throw new ApiError(event.error.code, event.error.message, 0);
          if (event.event === "done") setDoses(measuredDoses(key, event));
          else {
            const share = event.total === 0 ? 0 : event.tokens / event.total;
            setDoses((old) => ({ ...old, share, before: event.queue_position }));
          }
        }
      } catch (error) {
        if (!controller.signal.aborted) {
          setDoses({ ...NO_DOSES, status: "failed", key, failure: messageOf(error) });
        }
      }
    },
    [run],
  );
  useEffect(() => () => controllerRef.current?.abort(), []);
  return { doses, measure };
}
