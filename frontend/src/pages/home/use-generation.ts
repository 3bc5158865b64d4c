/** A generation in both arms: started, followed token by token, stopped. A new one ends the one before. */

import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError } from "@/api/errors";
import { streamSteering } from "@/api/stream";
import type { SteeringEvent, SteeringRequest, TokenEvent } from "@/api/types";

export interface Generation {
  readonly status: "idle" | "waiting" | "streaming" | "done" | "error";
  readonly default: readonly TokenEvent[];
  readonly steered: readonly TokenEvent[];
  readonly error: unknown;
}

const IDLE: Generation = { status: "idle", default: [], steered: [], error: null };

/** The generation after one more event. Text that is there stays, whatever happens. */
export function afterEvent(state: Generation, event: SteeringEvent): Generation {
  switch (event.event) {
    case "start":
      return { ...IDLE, status: "streaming" };
    case "progress":
      return state;
    case "token":
      return { ...state, [event.arm]: [...state[event.arm], event] };
    case "done":
      return { ...state, status: "done" };
    case "error":
      return { ...state, status: "error", error: new ApiError(event.error.code, event.error.message, 200) };
  }
}

async function follow(
  run: string,
  request: SteeringRequest,
  signal: AbortSignal,
  update: (change: (state: Generation) => Generation) => void,
): Promise<void> {
  try {
    for await (const event of streamSteering(run, request, signal)) update((state) => afterEvent(state, event));
  } catch (error) {
    if (!signal.aborted) update((state) => ({ ...state, status: "error", error }));
  }
}

export function useGeneration(run: string) {
  const [generation, setGeneration] = useState<Generation>(IDLE);
  const running = useRef<AbortController | null>(null);
  const start = useCallback(
    (request: SteeringRequest) => {
      running.current?.abort();
      const controller = new AbortController();
      running.current = controller;
      setGeneration((state) => ({ ...state, status: "waiting", error: null }));
      void follow(run, request, controller.signal, (change) => {
        if (!controller.signal.aborted) setGeneration(change);
      });
    },
    [run],
  );
  useEffect(() => () => running.current?.abort(), []);
  return { generation, start };
}
