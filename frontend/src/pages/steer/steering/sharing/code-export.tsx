/** The same generation as a shell command and as Python code. */

import { useQueries } from "@tanstack/react-query";

import { expertQuery } from "@/api/queries";
import type { RunSummary, SteeringRequest } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { Command } from "@/components/ui/copyable-command";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { type Edit, editKey } from "@/lib/edits/edits";

import { steerCommand, steerPython } from "./code-snippets";

interface CodeExportProps {
  readonly run: RunSummary;
  readonly request: SteeringRequest;
  /** The prompt as a single text, even if it is a chat. */
  readonly text: string;
  readonly edits: readonly Edit[];
  readonly code: "command" | "python";
  readonly onCode: (code: "command" | "python") => void;
}

/** 99th percentiles of the edited experts, where their run is indexed. */
function useUnits(run: RunSummary, edits: readonly Edit[]): ReadonlyMap<string, number> {
  const { runs } = useCurrentRun();
  const indexed = new Set(runs.filter((one) => one.indexed_tokens !== null).map((one) => one.name));
  const experts = useQueries({
    queries: edits.map((edit) => {
      const name = edit.run ?? run.name;
      return { ...expertQuery(name, edit.expert), enabled: indexed.has(name) };
    }),
  });
  return new Map(
    edits.flatMap((edit, i) => {
      const p99 = experts[i]?.data?.row.p99 ?? 0;
      return p99 > 0 ? [[editKey(edit), p99]] : [];
    }),
  );
}

export function CodeExport({ run, request, text, edits, code, onCode }: CodeExportProps) {
  const units = useUnits(run, edits);
  const command = () => steerCommand(run.name, { ...request, prompt: text });
  return (
    <section className="code-export" aria-label="Use this in code">
      <div className="pane-h">
        <h2>Use this in code</h2>
        <span className="grow" />
        <SegmentedControl
          label="Language"
          value={code}
          onChange={onCode}
          segments={[
            { value: "command", label: "Command" },
            { value: "python", label: "Python" },
          ]}
        />
      </div>
      <Command text={code === "command" ? command() : steerPython(run.name, request, units)} />
    </section>
  );
}
