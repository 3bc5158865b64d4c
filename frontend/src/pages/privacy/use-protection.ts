/** One protection at a time: stopping it, or leaving the page, ends it on the server, with nothing written. */

import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError, messageOf } from "@/api/errors";
import { runsQuery } from "@/api/queries";
import { streamProtection } from "@/api/stream";
import type { ProtectProgressEvent, ProtectRequest, ProtectedRuns } from "@/api/types";

interface Work {
  readonly status: "idle" | "working" | "stopped" | "failed";
  readonly progress: ProtectProgressEvent | null;
  readonly failure: string | null;
}

export interface Protection extends Work {
  readonly start: (request: ProtectRequest) => void;
  readonly stop: () => void;
}

const IDLE: Work = { status: "idle", progress: null, failure: null };

export function useProtection(onDone: (done: ProtectedRuns) => void): Protection {
  const [work, setWork] = useState<Work>(IDLE);
  const running = useRef<AbortController | null>(null);
  const queries = useQueryClient();
  const follow = async (request: ProtectRequest, signal: AbortSignal) => {
    try {
      for await (const event of streamProtection(request, signal)) {
        if (signal.aborted) return;
        if (event.event === "error") throw new ApiError(event.error.code, event.error.message, 0);
        if (event.event === "progress") setWork({ ...IDLE, status: "working", progress: event });
        else {
          await queries.invalidateQueries({ queryKey: runsQuery.queryKey });
          await queries.invalidateQueries({
            queryKey: ["run"],
            predicate: ({ queryKey }) => queryKey[2] === "privacy",
          });
          setWork(IDLE);
          onDone(event.protected);
        }
      }
    } catch (error) {
      if (!signal.aborted) setWork({ ...IDLE, status: "failed", failure: messageOf(error) });
    }
  };
  const start = (request: ProtectRequest) => {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    setWork({ ...IDLE, status: "working" });
    void follow(request, controller.signal);
  };
  const stop = useCallback(() => {
    running.current?.abort();
    setWork({ ...IDLE, status: "stopped" });
  }, []);
  useEffect(() => () => running.current?.abort(), []);
  return { ...work, start, stop };
}
