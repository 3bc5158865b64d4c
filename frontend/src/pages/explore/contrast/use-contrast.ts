/** Runs one contrast at a time, and keeps its result until the next one starts. */

import { useState } from "react";

import { streamContrast } from "@/api/http/stream";
import type { ContrastDoneEvent, ContrastProgressEvent, ContrastRequest, ContrastResult } from "@/api/types";
import { type StreamedWork, useStreamedWork } from "@/hooks/use-streamed-work";

export interface ContrastWork extends StreamedWork<ContrastRequest, ContrastProgressEvent> {
  readonly result: ContrastResult | null;
}

export function useContrast(run: string): ContrastWork {
  const [result, setResult] = useState<ContrastResult | null>(null);
  const work = useStreamedWork<ContrastRequest, ContrastProgressEvent, ContrastDoneEvent>(
    (request, signal) => streamContrast(run, request, signal),
    (done) => setResult(done.result),
  );
  const start = (request: ContrastRequest) => {
    setResult(null);
    work.start(request);
  };
  return { ...work, start, result };
}
