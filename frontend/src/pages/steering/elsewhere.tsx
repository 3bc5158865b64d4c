/** The same texts from the command line and from Python. */

import { useQueries } from "@tanstack/react-query";

import { expertQuery } from "@/api/queries";
import type { RunSummary, SteeringRequest } from "@/api/types";
import { Command } from "@/components/command";
import { Segmented } from "@/components/segmented";

import { steerCommand, steerPython } from "./export";

interface ElsewhereProps {
  readonly run: RunSummary;
  readonly request: SteeringRequest;
  readonly code: "command" | "python";
  readonly onCode: (code: "command" | "python") => void;
}

/** 99th percentiles of the edited experts, where the run's index knows them. */
function useUnits(run: RunSummary, request: SteeringRequest): ReadonlyMap<number, number> {
  const experts = request.edits?.map((edit) => edit.expert) ?? [];
  const found = useQueries({
    queries: experts.map((expert) => ({ ...expertQuery(run.name, expert), enabled: run.indexed_tokens !== null })),
  });
  return new Map(
    found.flatMap(({ data }) => (data !== undefined && data.row.p99 > 0 ? [[data.row.expert, data.row.p99]] : [])),
  );
}

export function Elsewhere({ run, request, code, onCode }: ElsewhereProps) {
  const units = useUnits(run, request);
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
      <Command text={code === "command" ? steerCommand(run.name, request) : steerPython(run.name, request, units)} />
    </section>
  );
}
