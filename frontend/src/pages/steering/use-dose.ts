/** Measures an edit over its range of strengths: one request, one batch on the server. */

import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError, messageOf } from "@/api/errors";
import { streamDose } from "@/api/stream";
import type { DoseDoneEvent, SteeringRequest } from "@/api/types";
import type { Edit } from "@/lib/edits";

import { doseKey, type DosedMode, dosePoints, type DosePoint, doseRequest } from "./dose";

export interface Doses {
  readonly status: "idle" | "measuring" | "done" | "failed";
  /** What they were measured for. */
  readonly key: string;
  readonly points: readonly DosePoint[];
  /** How much is written, from 0 to 1. */
  readonly share: number;
  /** Requests that come first. */
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

function measured(key: string, done: DoseDoneEvent): Doses {
  const { suggested, promoted } = done;
  return { ...NO_DOSES, status: "done", key, points: dosePoints(done), share: 1, suggested, promoted };
}

export function useDose(run: string) {
  const [doses, setDoses] = useState<Doses>(NO_DOSES);
  const running = useRef<AbortController | null>(null);
  const measure = useCallback(
    async (request: SteeringRequest, edit: Edit & { readonly mode: DosedMode }) => {
      running.current?.abort();
      const controller = new AbortController();
      running.current = controller;
      const key = doseKey(request, edit);
      setDoses({ ...NO_DOSES, status: "measuring", key });
      try {
        for await (const event of streamDose(run, doseRequest(request, edit), controller.signal)) {
          if (controller.signal.aborted) return;
          if (event.event === "error") throw new ApiError(event.error.code, event.error.message, 0);
          if (event.event === "done") setDoses(measured(key, event));
          else {
            const share = event.of === 0 ? 0 : event.tokens / event.of;
            setDoses((old) => ({ ...old, share, before: event.before }));
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
  useEffect(() => () => running.current?.abort(), []);
  return { doses, measure };
}
