/** Runs one privacy fine-tune at a time. Stopping it or leaving the page saves nothing. */

import { useQueryClient } from "@tanstack/react-query";

import { streamProtection } from "@/api/http/stream";
import { runsQuery } from "@/api/queries";
import type { PrivacyFineTune, ProtectDoneEvent, ProtectProgressEvent, ProtectRequest } from "@/api/types";
import { type StreamedWork, useStreamedWork } from "@/hooks/use-streamed-work";

export type Protection = StreamedWork<ProtectRequest, ProtectProgressEvent>;

export function useProtection(onDone: (done: PrivacyFineTune) => void): Protection {
  const queries = useQueryClient();
  return useStreamedWork<ProtectRequest, ProtectProgressEvent, ProtectDoneEvent>(streamProtection, async (done) => {
    await queries.invalidateQueries({ queryKey: runsQuery.queryKey });
    await queries.invalidateQueries({ queryKey: ["run"], predicate: ({ queryKey }) => queryKey[2] === "privacy" });
    onDone(done.protected);
  });
}
