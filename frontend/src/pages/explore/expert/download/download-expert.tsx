/** Menu that downloads the expert's statistics and the examples on screen. */

import { useQueryClient } from "@tanstack/react-query";

import { expertQuery } from "@/api/queries";
import { toCsv } from "@/components/plots/figure/figure-data";
import { useCurrentRun } from "@/components/runs/current-run";
import { ActionMenu } from "@/components/ui/action-menu";
import { useColumns } from "@/hooks/use-columns";
import { useUrlState } from "@/hooks/use-url-state";
import { saveFile } from "@/lib/browser/save-file";
import { shownGroups } from "@/pages/explore/expert/examples/shown-groups";
import { EXPERT_PARAMS } from "@/pages/explore/expert/expert-params";

import { examplesTable, expertJson, statisticsTable } from "./expert-file";

const FILES = {
  json: "Everything shown, JSON",
  examples: "Examples, CSV",
  statistics: "Statistics, CSV",
} as const;

export function DownloadExpert({ expert }: { readonly expert: string }) {
  const queries = useQueryClient();
  const columns = useColumns();
  const { name: run } = useCurrentRun();
  const [params] = useUrlState(EXPERT_PARAMS);
  const download = (kind: keyof typeof FILES) => {
    if (run === null) return;
    const detail = queries.getQueryData(expertQuery(run, Number(expert)).queryKey);
    if (detail === undefined) return;
    const name = `${run}-${expert}`;
    if (kind === "statistics") {
      saveFile(`${name}-statistics.csv`, toCsv(statisticsTable(detail, columns)), "text/csv");
      return;
    }
    const groups = shownGroups(queries, run, detail, params);
    if (kind === "examples") saveFile(`${name}-examples.csv`, toCsv(examplesTable(groups, params)), "text/csv");
    else saveFile(`${name}.json`, expertJson(run, detail, groups, params), "application/json");
  };
  return <ActionMenu label="Download" actions={FILES} onAction={download} className="btn icon wide" />;
}
