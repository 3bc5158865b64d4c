/** Measures an edit at several strengths in one request. */

import { useState } from "react";

import { streamStrengthSweep } from "@/api/http/stream";
import type {
  StrengthSweepDoneEvent,
  StrengthSweepProgressEvent,
  StrengthSweepRequest,
  SteeringRequest,
} from "@/api/types";
import { type StreamedWork, useStreamedWork } from "@/hooks/use-streamed-work";
import type { Edit } from "@/lib/edits/edits";

import { sweepKey, sweepRequest, type SweepMode } from "./sweep";

export interface Sweep extends Pick<
  StreamedWork<StrengthSweepRequest, StrengthSweepProgressEvent>,
  "status" | "progress" | "failure" | "stop"
> {
  /** Cache key of the measured request. */
  readonly key: string;
  readonly result: StrengthSweepDoneEvent | null;
}

export function useSweep(run: string) {
  const [key, setKey] = useState("");
  const [result, setResult] = useState<StrengthSweepDoneEvent | null>(null);
  const work = useStreamedWork<StrengthSweepRequest, StrengthSweepProgressEvent, StrengthSweepDoneEvent>(
    (request, signal) => streamStrengthSweep(run, request, signal),
    setResult,
  );
  const measure = (request: SteeringRequest, edit: Edit & { readonly mode: SweepMode }) => {
    setKey(sweepKey(request, edit));
    setResult(null);
    work.start(sweepRequest(request, edit));
  };
  const sweep: Sweep = { ...work, key, result };
  return { sweep, measure };
}
