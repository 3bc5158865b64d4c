/** What the page shows of an expert, as one JSON file: its figures, and the contexts that have been fetched. */

import { type InfiniteData, useQueryClient } from "@tanstack/react-query";

import { contextsQuery, expertQuery } from "@/api/queries";
import type { Context, ExpertDetail } from "@/api/types";
import { Button } from "@/components/button";
import { useCurrentRun } from "@/components/current-run";
import { saveFile } from "@/lib/save-file";

import { CONTEXTS_PER_PAGE } from "./context-group";

type ContextPages = InfiniteData<{ readonly contexts: readonly Context[] }>;

export function DownloadExpert({ expert }: { readonly expert: string }) {
  const queries = useQueryClient();
  const { name: run } = useCurrentRun();
  const download = () => {
    if (run === null) return;
    const id = Number(expert);
    const detail = queries.getQueryData<ExpertDetail>(expertQuery(run, id).queryKey);
    if (detail === undefined) return;
    const contexts = detail.intervals.flatMap(({ interval }) => {
      const { queryKey } = contextsQuery(run, id, interval, CONTEXTS_PER_PAGE);
      return queries.getQueryData<ContextPages>(queryKey)?.pages.flatMap((page) => page.contexts) ?? [];
    });
    saveFile(`${run}-${expert}.json`, JSON.stringify({ run, ...detail, contexts }, null, 2), "application/json");
  };
  return <Button className="wide" icon="download" aria-label="Download what is shown, as JSON" onClick={download} />;
}
