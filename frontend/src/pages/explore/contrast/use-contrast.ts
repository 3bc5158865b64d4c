/** Runs one contrast at a time. Stopping it or leaving the page cancels it on the server. */

import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError, messageOf } from "@/api/http/errors";
import { streamContrast } from "@/api/http/stream";
import type { ContrastProgressEvent, ContrastRequest, ContrastResult } from "@/api/types";

interface ContrastState {
  readonly status: "idle" | "working" | "stopped" | "failed";
  readonly progress: ContrastProgressEvent | null;
  readonly failure: string | null;
  readonly result: ContrastResult | null;
}

export interface ContrastWork extends ContrastState {
  readonly start: (request: ContrastRequest) => void;
  readonly stop: () => void;
}

const IDLE: ContrastState = { status: "idle", progress: null, failure: null, result: null };

export function useContrast(run: string): ContrastWork {
  const [state, setState] = useState<ContrastState>(IDLE);
  const controllerRef = useRef<AbortController | null>(null);
  const consumeStream = async (request: ContrastRequest, signal: AbortSignal) => {
    try {
      for await (const event of streamContrast(run, request, signal)) {
        if (signal.aborted) return;
        if (event.event === "error") throw new ApiError(event.error.code, event.error.message, 0);
        if (event.event === "progress") setState({ ...IDLE, status: "working", progress: event });
        else setState({ ...IDLE, result: event.result });
      }
    } catch (error) {
      if (!signal.aborted) setState({ ...IDLE, status: "failed", failure: messageOf(error) });
    }
  };
  const start = (request: ContrastRequest) => {
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
