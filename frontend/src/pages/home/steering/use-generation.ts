/** Baseline and steered generation, updated token by token. Starting a new one cancels the previous one. */

import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError } from "@/api/http/errors";
import { streamSteering } from "@/api/http/stream";
import type { SteeringEvent, SteeringRequest, TokenEvent } from "@/api/types";

export interface Generation {
  readonly status: "idle" | "waiting" | "streaming" | "done" | "error";
  readonly baseline: readonly TokenEvent[];
  readonly steered: readonly TokenEvent[];
  readonly error: unknown;
}

const IDLE: Generation = { status: "idle", baseline: [], steered: [], error: null };

/** Reducer of stream events. Text that has arrived is kept, even after an error. */
export function reduceEvent(state: Generation, event: SteeringEvent): Generation {
  switch (event.event) {
    case "start":
      return { ...IDLE, status: "streaming" };
    case "progress":
      return state;
    case "token":
      return { ...state, [event.variant]: [...state[event.variant], event] };
    case "done":
      return { ...state, status: "done" };
    case "error":
      return { ...state, status: "error", error: new ApiError(event.error.code, event.error.message, 200) };
  }
}

async function consumeStream(
  run: string,
  request: SteeringRequest,
  signal: AbortSignal,
  update: (change: (state: Generation) => Generation) => void,
): Promise<void> {
  try {
    for await (const event of streamSteering(run, request, signal)) update((state) => reduceEvent(state, event));
  } catch (error) {
    if (!signal.aborted) update((state) => ({ ...state, status: "error", error }));
  }
}

export function useGeneration(run: string) {
  const [generation, setGeneration] = useState<Generation>(IDLE);
  const controllerRef = useRef<AbortController | null>(null);
  const start = useCallback(
    (request: SteeringRequest) => {
      controllerRef.current?.abort();
      const controller = new AbortController();
      controllerRef.current = controller;
      setGeneration((state) => ({ ...state, status: "waiting", error: null }));
      void consumeStream(run, request, controller.signal, (change) => {
        if (!controller.signal.aborted) setGeneration(change);
      });
    },
    [run],
  );
  useEffect(() => () => controllerRef.current?.abort(), []);
  return { generation, start };
}
