/** Runs one generation at a time. A new one, or leaving the page, cancels the previous one. */

import { useCallback, useEffect, useRef, useState } from "react";

import { messageOf } from "@/api/http/errors";
import { streamSteering } from "@/api/http/stream";
import type { SteeringEvent, SteeringRequest } from "@/api/types";

import { reduceEvents, requested, ended, failed, type Generation, NO_GENERATION, stopped } from "./generation";

/** Events within this interval are rendered together. */
const RENDER_INTERVAL_MS = 30;

/** Feeds the events of a generation to `update`, tokens a few times per second. */
async function consumeStream(
  run: string,
  request: SteeringRequest,
  signal: AbortSignal,
  update: (change: (state: Generation) => Generation) => void,
): Promise<void> {
  let events: SteeringEvent[] = [];
  let flushedAt = 0;
  const flush = () => {
    const [ready, now] = [events, performance.now()];
    events = [];
    flushedAt = now;
    if (ready.length > 0) update((state) => reduceEvents(state, ready, now));
  };
  try {
    for await (const event of streamSteering(run, request, signal)) {
      events.push(event);
      if (event.event !== "token" || performance.now() - flushedAt > RENDER_INTERVAL_MS) flush();
    }
    flush();
    update(ended);
  } catch (error) {
    flush();
    if (!signal.aborted) update((state) => failed(state, messageOf(error)));
  }
}

export function useGeneration(run: string) {
  const [generation, setGeneration] = useState<Generation>(NO_GENERATION);
  const controllerRef = useRef<AbortController | null>(null);
  const start = useCallback(
    (request: SteeringRequest) => {
      controllerRef.current?.abort();
      const controller = new AbortController();
      controllerRef.current = controller;
      setGeneration(requested);
      void consumeStream(run, request, controller.signal, (change) => {
        if (controllerRef.current === controller) setGeneration(change);
      });
    },
    [run],
  );
  const stop = useCallback(() => {
    controllerRef.current?.abort();
    setGeneration(stopped);
  }, []);
  /** Back to no text. */
  const clear = useCallback(() => {
    controllerRef.current?.abort();
    setGeneration(NO_GENERATION);
  }, []);
  useEffect(
    () => () => {
      controllerRef.current?.abort();
      controllerRef.current = null;
    },
    [],
  );
  return { generation, start, stop, clear };
}

export type Generator = ReturnType<typeof useGeneration>;
