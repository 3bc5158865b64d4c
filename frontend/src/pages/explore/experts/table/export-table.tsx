/** Exports all experts that match the filters, with the order and columns on screen. */

import { useState } from "react";

import { messageOf } from "@/api/http/errors";
import { fetchAllExperts } from "@/api/queries";
import type { ExpertRow } from "@/api/types";
import { toCsv } from "@/components/plots/figure/figure-data";
import { ActionMenu } from "@/components/ui/action-menu";
import { Icon } from "@/components/ui/icon";
import { saveFile } from "@/lib/browser/save-file";
import { formatCount } from "@/lib/text/format";
import { type ExpertsView, toFilters } from "@/pages/explore/experts/experts-params";

import { tableRow } from "./table-file";

interface ExportTableProps {
  readonly run: string;
  readonly view: ExpertsView;
}

const FORMATS = { csv: "CSV", json: "JSON" } as const;
type Format = keyof typeof FORMATS;

function save(run: string, view: ExpertsView, rows: readonly ExpertRow[], format: Format): void {
  const experts = rows.map((row) => tableRow(row, view.columns, view.params.hide));
  if (format === "csv") {
    const [first = {}] = experts;
    const table = { columns: Object.keys(first), rows: experts.map((row) => Object.values(row).map(String)) };
    saveFile(`${run}-experts.csv`, toCsv(table), "text/csv");
    return;
  }
  saveFile(
    `${run}-experts.json`,
    JSON.stringify({ run, asked: toFilters(view), experts }, null, 2),
    "application/json",
  );
}

export function ExportTable({ run, view }: ExportTableProps) {
  const [progress, setProgress] = useState("");
  const start = async (format: Format) => {
    setProgress("0");
    try {
      const rows = await fetchAllExperts(run, toFilters(view), (count) => setProgress(formatCount(count)));
      save(run, view, rows, format);
      setProgress("");
    } catch (error) {
      setProgress(messageOf(error));
    }
  };
  return (
    <>
      {progress !== "" && (
        <span className="dim" role="status">
          {progress}
        </span>
      )}
      <ActionMenu label="Export table" actions={FORMATS} onAction={(format) => void start(format)} className="btn">
        <Icon name="download" /> Export
      </ActionMenu>
    </>
  );
}
