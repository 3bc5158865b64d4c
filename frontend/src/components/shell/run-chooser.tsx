/** Which run every page is about. */

import { ListBox, ListBoxItem, Popover, Select, SelectValue } from "react-aria-components";
import { useLocation, useNavigate } from "react-router";

import type { RunSummary } from "@/api/types";

import { useCurrentRun } from "../current-run";
import { Icon } from "../icon";
import { layersInWords, methodName } from "../run-words";
import { TriggerButton } from "../trigger-button";

export function runLine(run: RunSummary): string {
  return `${methodName(run.method)}, ${layersInWords(run)}, K ${run.k}`;
}

/** The same page for another run; what only the old run has is left behind. */
function addressFor(pathname: string, run: string): string {
  if (pathname.startsWith("/runs/")) return `/runs/${encodeURIComponent(run)}`;
  const section = /^\/[^/]*/.exec(pathname)?.[0] ?? "/";
  return `${section}?run=${encodeURIComponent(run)}`;
}

export function RunOption({ run }: { readonly run: RunSummary }) {
  return (
    <ListBoxItem id={run.name} textValue={run.name} className="run-option">
      <b className="mono">{run.name}</b>
      <span className="dim">
        {runLine(run)}
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
        if (key !== null && key !== name) void navigate(addressFor(pathname, String(key)));
      }}
    >
      <TriggerButton className={look === "boxed" ? "runpick" : "runpick bare"}>
        <SelectValue>
          {() => (
            <>
              <b>{name ?? "No run yet"}</b>
              {look === "boxed" && (
                <span className="line">{summary === null ? "mxd train fits one" : runLine(summary)}</span>
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
