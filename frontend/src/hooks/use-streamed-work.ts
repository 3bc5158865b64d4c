/** Runs one long request at a time, whose response is a stream. Stopping it or leaving the page cancels it on the server. */

import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError, messageOf } from "@/api/http";
import type { ErrorEvent } from "@/api/types";

interface WorkState<Progress> {
  readonly status: "idle" | "working" | "stopped" | "failed";
  readonly progress: Progress | null;
  readonly failure: string | null;
}

export interface StreamedWork<Request, Progress> extends WorkState<Progress> {
  readonly start: (request: Request) => void;
  readonly stop: () => void;
}

const IDLE = { status: "idle", progress: null, failure: null } as const;

export function useStreamedWork<
  Request,
  Progress extends { readonly event: "progress" },
  Done extends { readonly event: "done" },
>(
  open: (request: Request, signal: AbortSignal) => AsyncIterable<Progress | Done | ErrorEvent>,
  onDone: (done: Done, request: Request) => void | Promise<void>,
): StreamedWork<Request, Progress> {
  const [state, setState] = useState<WorkState<Progress>>(IDLE);
  const controllerRef = useRef<AbortController | null>(null);
  const consumeStream = async (request: Request, signal: AbortSignal) => {
    try {
      for await (const event of open(request, signal)) {
        if (signal.aborted) return;
        if (event.event === "error") throw new ApiError(event.error.code, event.error.message, 0);
        if (event.event === "progress") setState({ ...IDLE, status: "working", progress: event });
        else {
          await onDone(event, request);
          setState(IDLE);
        }
      }
    } catch (error) {
      if (!signal.aborted) setState({ ...IDLE, status: "failed", failure: messageOf(error) });
    }
  };
  const start = (request: Request) => {
    controllerRef.current?.abort();
    const controller = new AbortController();
    controllerRef.current = controller;
    setState({ ...IDLE, status: "working" });
    void consumeStream(request, controller.signal);
  };
  const stop = useCallback(() => {
    controllerRef.current?.abort();
    setState({ ...IDLE, status: "stopped" });
  }, []);
  useEffect(() => () => controllerRef.current?.abort(), []);
  return { ...state, start, stop };
}
