/** Measures an edit at several strengths in one request. */

import { useState } from "react";

import { streamDose } from "@/api/http/stream";
import type { DoseDoneEvent, DoseProgressEvent, DoseRequest, SteeringRequest } from "@/api/types";
import { type StreamedWork, useStreamedWork } from "@/hooks/use-streamed-work";
import type { Edit } from "@/lib/edits/edits";

import { doseKey, doseRequest, type SweepMode } from "./dose";

export interface Sweep extends Pick<
  StreamedWork<DoseRequest, DoseProgressEvent>,
  "status" | "progress" | "failure" | "stop"
> {
  /** Cache key of the measured request. */
  readonly key: string;
  readonly result: DoseDoneEvent | null;
}

export function useDose(run: string) {
  const [key, setKey] = useState("");
  const [result, setResult] = useState<DoseDoneEvent | null>(null);
  const work = useStreamedWork<DoseRequest, DoseProgressEvent, DoseDoneEvent>(
    (request, signal) => streamDose(run, request, signal),
    setResult,
  );
  const measure = (request: SteeringRequest, edit: Edit & { readonly mode: SweepMode }) => {
    setKey(doseKey(request, edit));
    setResult(null);
    work.start(doseRequest(request, edit));
  };
  const sweep: Sweep = { ...work, key, result };
  return { sweep, measure };
}
