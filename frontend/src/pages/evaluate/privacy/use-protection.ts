/** Runs one privacy fine-tune at a time. Stopping it or leaving the page cancels it on the server without saving. */

import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError, messageOf } from "@/api/http/errors";
import { streamProtection } from "@/api/http/stream";
import { runsQuery } from "@/api/queries";
import type { ProtectProgressEvent, ProtectRequest, PrivacyFineTune } from "@/api/types";

interface ProtectionState {
  readonly status: "idle" | "working" | "stopped" | "failed";
  readonly progress: ProtectProgressEvent | null;
  readonly failure: string | null;
}

export interface Protection extends ProtectionState {
  readonly start: (request: ProtectRequest) => void;
  readonly stop: () => void;
}

const IDLE: ProtectionState = { status: "idle", progress: null, failure: null };

export function useProtection(onDone: (done: PrivacyFineTune) => void): Protection {
  const [state, setState] = useState<ProtectionState>(IDLE);
  const controllerRef = useRef<AbortController | null>(null);
  const queries = useQueryClient();
  const consumeStream = async (request: ProtectRequest, signal: AbortSignal) => {
    try {
      for await (const event of streamProtection(request, signal)) {
        if (signal.aborted) return;
        if (event.event === "error") throw new ApiError(event.error.code, event.error.message, 0);
        if (event.event === "progress") setState({ ...IDLE, status: "working", progress: event });
        else {
          await queries.invalidateQueries({ queryKey: runsQuery.queryKey });
          await queries.invalidateQueries({
            queryKey: ["run"],
            predicate: ({ queryKey }) => queryKey[2] === "privacy",
          });
          setState(IDLE);
          onDone(event.protected);
        }
      }
    } catch (error) {
      if (!signal.aborted) setState({ ...IDLE, status: "failed", failure: messageOf(error) });
    }
  };
  const start = (request: ProtectRequest) => {
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
