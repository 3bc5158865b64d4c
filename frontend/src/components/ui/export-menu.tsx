/** A menu that saves a result as CSV or JSON. */

import { saveFile } from "@/lib/browser/save-file";

import { ActionMenu } from "./action-menu";
import { Icon } from "./icon";

interface ExportMenuProps {
  /** Of the file, without its ending. */
  readonly name: string;
  readonly csv: () => string;
  readonly json: () => unknown;
  readonly isDisabled?: boolean;
}

export function ExportMenu({ name, csv, json, isDisabled = false }: ExportMenuProps) {
  const save = (format: "csv" | "json") => {
    if (format === "csv") saveFile(`${name}.csv`, csv(), "text/csv");
    else saveFile(`${name}.json`, JSON.stringify(json(), null, 2), "application/json");
  };
  return (
    <ActionMenu
      label="Export"
      actions={{ csv: "CSV", json: "JSON" }}
      onAction={save}
      className="btn"
      isDisabled={isDisabled}
    >
      <Icon name="download" /> Export
    </ActionMenu>
  );
}
