/** A run in a list to choose from. */

import { ListBoxItem } from "react-aria-components";

import type { RunSummary } from "@/api/types";

import { runSummaryLine } from "./run-labels";

export function RunOption({ run }: { readonly run: RunSummary }) {
  return (
    <ListBoxItem id={run.name} textValue={run.name} className="run-option">
      <b className="mono">{run.name}</b>
      <span className="dim">
        {runSummaryLine(run)}
        {run.indexed_tokens === null && ", not indexed"}
      </span>
    </ListBoxItem>
  );
}
