/** Runs one contrast at a time. Its result stays until the next one starts, and for a while after leaving the page. */

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { streamContrast } from "@/api/http/stream";
import type { ContrastDoneEvent, ContrastProgressEvent, ContrastRequest, ContrastResult } from "@/api/types";
import { type StreamedWork, useStreamedWork } from "@/hooks/use-streamed-work";

export interface ContrastWork extends StreamedWork<ContrastRequest, ContrastProgressEvent> {
  readonly result: ContrastResult | null;
}

/** `choice` is the choice of texts in the URL: the Back button finds its result again. */
export function useContrast(run: string, choice: string): ContrastWork {
  const queries = useQueryClient();
  const key = ["run", run, "contrast", choice];
  const [result, setResult] = useState(() => queries.getQueryData<ContrastResult>(key) ?? null);
  const work = useStreamedWork<ContrastRequest, ContrastProgressEvent, ContrastDoneEvent>(
    (request, signal) => streamContrast(run, request, signal),
    (done) => {
      queries.setQueryData(key, done.result);
      setResult(done.result);
    },
  );
  const start = (request: ContrastRequest) => {
    setResult(null);
    work.start(request);
  };
  return { ...work, start, result };
}
