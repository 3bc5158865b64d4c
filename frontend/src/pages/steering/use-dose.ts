/** Measures an edit over its range of strengths: all doses at once, so that the server can take them as one batch. */

import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError, messageOf } from "@/api/errors";
import { streamSteering } from "@/api/stream";
import type { SteeringRequest, TokenEvent } from "@/api/types";
import type { Edit } from "@/lib/edits";

import { doseKey, type DosedMode, dosePoint, type DosePoint, doseRequest, DOSES } from "./dose";

export interface Doses {
  readonly status: "idle" | "measuring" | "done" | "failed";
  /** What they were measured for. */
  readonly key: string;
  readonly points: readonly DosePoint[];
  readonly failure: string | null;
}

const NO_DOSES: Doses = { status: "idle", key: "", points: [], failure: null };

async function tokensOf(run: string, request: SteeringRequest, signal: AbortSignal): Promise<readonly TokenEvent[]> {
  const tokens: TokenEvent[] = [];
  for await (const event of streamSteering(run, request, signal)) {
    if (event.event === "token") tokens.push(event);
    if (event.event === "error") throw new ApiError(event.error.code, event.error.message, 0);
  }
  return tokens;
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
      setDoses({ status: "measuring", key, points: [], failure: null });
      try {
        const points = await Promise.all(
          DOSES[edit.mode].map(async (strength) =>
            dosePoint(strength, await tokensOf(run, doseRequest(request, edit, strength), controller.signal)),
          ),
        );
        if (!controller.signal.aborted) setDoses({ status: "done", key, points, failure: null });
      } catch (error) {
        if (controller.signal.aborted) return;
        controller.abort();
        setDoses({ status: "failed", key, points: [], failure: messageOf(error) });
      }
    },
    [run],
  );
  useEffect(() => () => running.current?.abort(), []);
  return { doses, measure };
}
