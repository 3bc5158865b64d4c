/** Runs one contrast at a time. Its result stays until the next one starts, and for a while after leaving the page. */

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { streamContrast } from "@/api/http/stream";
import type { ContrastDoneEvent, ContrastProgressEvent, ContrastRequest, ContrastResult } from "@/api/types";
import { type StreamedWork, useStreamedWork } from "@/hooks/use-streamed-work";
import type { Values } from "@/hooks/use-url-state";

import type { CONTRAST_PARAMS } from "./contrast-params";

export interface ContrastWork extends StreamedWork<ContrastRequest, ContrastProgressEvent> {
  readonly result: ContrastResult | null;
}

/** The choice of texts, as in the URL: the Back button finds its result again. */
type ContrastChoice = Pick<Values<typeof CONTRAST_PARAMS>, "a" | "b" | "tokens">;

const resultKey = (run: string, { a, b, tokens }: ContrastChoice) => ["run", run, "contrast", a, b, tokens];

export function useContrast(run: string, choice: ContrastChoice): ContrastWork {
  const queries = useQueryClient();
  const [result, setResult] = useState(() => queries.getQueryData<ContrastResult>(resultKey(run, choice)) ?? null);
  const work = useStreamedWork<ContrastRequest, ContrastProgressEvent, ContrastDoneEvent>(
    (request, signal) => streamContrast(run, request, signal),
    (done, { tokens = choice.tokens }) => {
      queries.setQueryData(resultKey(run, { ...choice, tokens }), done.result);
      setResult(done.result);
    },
  );
  const start = (request: ContrastRequest) => {
    setResult(null);
    work.start(request);
  };
  return { ...work, start, result };
}
