/** The same texts from the command line and from Python. */

import { useQueries } from "@tanstack/react-query";

import { expertQuery } from "@/api/queries";
import type { RunSummary, SteeringRequest } from "@/api/types";
import { Command } from "@/components/command";
import { useCurrentRun } from "@/components/current-run";
import { Segmented } from "@/components/segmented";
import { type Edit, editKey } from "@/lib/edits";

import { steerCommand, steerPython } from "./export";

interface ElsewhereProps {
  readonly run: RunSummary;
  readonly request: SteeringRequest;
  /** The prompt as one text, also where it is a chat. */
  readonly text: string;
  readonly edits: readonly Edit[];
  readonly code: "command" | "python";
  readonly onCode: (code: "command" | "python") => void;
}

/** 99th percentiles of the edited experts, where the run's index knows them. */
function useUnits(run: RunSummary, edits: readonly Edit[]): ReadonlyMap<string, number> {
  const { runs } = useCurrentRun();
  const indexed = new Set(runs.filter((one) => one.indexed_tokens !== null).map((one) => one.name));
  const found = useQueries({
    queries: edits.map((edit) => {
      const name = edit.run ?? run.name;
      return { ...expertQuery(name, edit.expert), enabled: indexed.has(name) };
    }),
  });
  return new Map(
    edits.flatMap((edit, i) => {
      const p99 = found[i]?.data?.row.p99 ?? 0;
      return p99 > 0 ? [[editKey(edit), p99]] : [];
    }),
  );
}

export function Elsewhere({ run, request, text, edits, code, onCode }: ElsewhereProps) {
  const units = useUnits(run, edits);
  const command = () => steerCommand(run.name, { ...request, prompt: text });
  return (
    <section className="elsewhere" aria-label="The same, elsewhere">
      <div className="pane-h">
        <h2>The same, elsewhere</h2>
        <span className="grow" />
        <Segmented
          label="As"
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
