/** Menu that downloads the expert's statistics and the examples on screen. */

import { useQueryClient } from "@tanstack/react-query";
import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";

import { expertQuery } from "@/api/queries";
import { toCsv } from "@/components/plots/figure/figure-data";
import { useCurrentRun } from "@/components/runs/current-run";
import { TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { useColumns } from "@/hooks/use-columns";
import { useUrlState } from "@/hooks/use-url-state";
import { saveFile } from "@/lib/browser/save-file";
import { shownGroups } from "@/pages/explore/expert/examples/shown-groups";
import { EXPERT_PARAMS } from "@/pages/explore/expert/expert-params";

import { contextsTable, expertJson, statisticsTable } from "./expert-file";

const FILES = {
  json: "Everything shown, JSON",
  contexts: "Examples, CSV",
  statistics: "Statistics, CSV",
} as const;
type FileKind = keyof typeof FILES;

export function DownloadExpert({ expert }: { readonly expert: string }) {
  const queries = useQueryClient();
  const columns = useColumns();
  const { name: run } = useCurrentRun();
  const [params] = useUrlState(EXPERT_PARAMS);
  const download = (kind: FileKind) => {
    if (run === null) return;
    const detail = queries.getQueryData(expertQuery(run, Number(expert)).queryKey);
    if (detail === undefined) return;
    const name = `${run}-${expert}`;
    if (kind === "statistics") {
      saveFile(`${name}-statistics.csv`, toCsv(statisticsTable(detail, columns)), "text/csv");
      return;
    }
    const groups = shownGroups(queries, run, detail, params);
    if (kind === "contexts") saveFile(`${name}-contexts.csv`, toCsv(contextsTable(groups, params)), "text/csv");
    else saveFile(`${name}.json`, expertJson(run, detail, groups, params), "application/json");
  };
  return (
    <MenuTrigger>
      <TriggerButton className="btn icon wide" aria-label="Download">
        <Icon name="download" />
      </TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Menu
          className="menu"
          aria-label="Download"
          onAction={(key) => {
            download(key as FileKind);
          }}
        >
          {Object.entries(FILES).map(([kind, name]) => (
            <MenuItem key={kind} id={kind}>
              {name}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
