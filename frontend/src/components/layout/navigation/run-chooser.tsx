/** Selector of the current run. */

import { ListBox, ListBoxItem, Popover, Select, SelectValue } from "react-aria-components";
import { useLocation, useNavigate } from "react-router";

import type { RunSummary } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { methodName } from "@/components/runs/run-labels";
import { TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";

export function runSummaryLine(run: RunSummary): string {
  return `${methodName(run.method)}, layer ${run.layer}, K ${run.k}`;
}

/** The same section for another run; parameters specific to the old run are dropped. */
function urlForRun(pathname: string, run: string): string {
  if (pathname.startsWith("/runs/")) return `/runs/${encodeURIComponent(run)}`;
  const section = /^\/[^/]*/.exec(pathname)?.[0] ?? "/";
  return `${section}?run=${encodeURIComponent(run)}`;
}

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

export function RunChooser({ look = "boxed" }: { readonly look?: "boxed" | "bare" }) {
  const { name, summary, runs } = useCurrentRun();
  const { pathname } = useLocation();
  const navigate = useNavigate();
  return (
    <Select
      aria-label="Run"
      className={look === "boxed" ? "run-select" : "run-select bare"}
      value={name}
      isDisabled={runs.length === 0}
      onChange={(key) => {
        if (key !== null && key !== name) void navigate(urlForRun(pathname, String(key)));
      }}
    >
      <TriggerButton className={look === "boxed" ? "runpick" : "runpick bare"}>
        <SelectValue>
          {() => (
            <>
              <b>{name ?? "No runs yet"}</b>
              {look === "boxed" && (
                <span className="line">{summary === null ? "create one with mxd train" : runSummaryLine(summary)}</span>
              )}
            </>
          )}
        </SelectValue>
        <Icon name="chevronDown" />
      </TriggerButton>
      <Popover className="popover" placement="bottom start">
        <ListBox items={runs.map((run) => ({ run, id: run.name }))}>{({ run }) => <RunOption run={run} />}</ListBox>
      </Popover>
    </Select>
  );
}
