/** One generation at a time: a new one aborts the one before, and so does leaving the page. */

import { useCallback, useEffect, useRef, useState } from "react";

import { messageOf } from "@/api/errors";
import { streamSteering } from "@/api/stream";
import type { SteeringEvent, SteeringRequest } from "@/api/types";

import { afterEvents, asked, ended, failed, type Generation, NO_GENERATION, stopped } from "./generation";

/** Tokens that come faster than this are drawn together. */
const DRAW_MS = 30;

type Update = (change: (state: Generation) => Generation) => void;

/** Gathers events and hands them on a few times a second. */
function createBuffer(update: Update) {
  let events: SteeringEvent[] = [];
  let timer: number | null = null;
  const flush = () => {
    if (timer !== null) window.clearTimeout(timer);
    timer = null;
    const ready = events;
    events = [];
    const now = performance.now();
    if (ready.length > 0) update((state) => afterEvents(state, ready, now));
  };
  const add = (event: SteeringEvent) => {
    events.push(event);
    timer ??= window.setTimeout(flush, DRAW_MS);
  };
  return { add, flush };
}

async function follow(run: string, request: SteeringRequest, signal: AbortSignal, update: Update): Promise<void> {
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

export interface Generator {
  readonly generation: Generation;
  readonly start: (request: SteeringRequest) => void;
  readonly stop: () => void;
}

export function useGeneration(run: string): Generator {
  const [generation, setGeneration] = useState<Generation>(NO_GENERATION);
  const running = useRef<AbortController | null>(null);
  const start = useCallback(
    (request: SteeringRequest) => {
      running.current?.abort();
      const controller = new AbortController();
      running.current = controller;
      setGeneration(asked);
      void follow(run, request, controller.signal, (change) => {
        if (running.current === controller) setGeneration(change);
      });
    },
    [run],
  );
  const stop = useCallback(() => {
    running.current?.abort();
    setGeneration(stopped);
  }, []);
  useEffect(
    () => () => {
      running.current?.abort();
      running.current = null;
    },
    [],
  );
  return { generation, start, stop };
}
