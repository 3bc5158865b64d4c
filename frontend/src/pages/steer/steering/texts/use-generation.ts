/** Runs one generation at a time. A new one, or leaving the page, cancels the previous one. */

import { useCallback, useEffect, useRef, useState } from "react";

import { messageOf } from "@/api/http/errors";
import { streamSteering } from "@/api/http/stream";
import type { SteeringEvent, SteeringRequest } from "@/api/types";

import { reduceEvents, requested, ended, failed, type Generation, NO_GENERATION, stopped } from "./generation";

/** Events within this interval are rendered together. */
const RENDER_INTERVAL_MS = 30;

type Update = (change: (state: Generation) => Generation) => void;

/** Collects events and flushes them a few times per second. */
function createBuffer(update: Update) {
  let events: SteeringEvent[] = [];
  let timer: number | null = null;
  const flush = () => {
    if (timer !== null) window.clearTimeout(timer);
    timer = null;
    const ready = events;
    events = [];
    const now = performance.now();
    if (ready.length > 0) update((state) => reduceEvents(state, ready, now));
  };
  const add = (event: SteeringEvent) => {
    events.push(event);
    timer ??= window.setTimeout(flush, RENDER_INTERVAL_MS);
  };
  return { add, flush };
}

async function consumeStream(
  run: string,
  request: SteeringRequest,
  signal: AbortSignal,
  update: Update,
): Promise<void> {
  const buffer = createBuffer(update);
  try {
    for await (const event of streamSteering(run, request, signal)) buffer.add(event);
    buffer.flush();
    update(ended);
  } catch (error) {
    buffer.flush();
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
