/** The same generation as a shell command and as Python code. */

import type { RunSummary, SteeringRequest } from "@/api/types";
import { Code, useCommandFlags } from "@/components/ui/copyable-command";
import { SegmentedControl } from "@/components/ui/segmented-control";

import { steerCommand, steerPython } from "./code-snippets";

interface CodeExportProps {
  readonly run: RunSummary;
  readonly request: SteeringRequest;
  /** The prompt as a single text, even if it is a chat. */
  readonly text: string;
  readonly code: "command" | "python";
  readonly onCode: (code: "command" | "python") => void;
}

export function CodeExport({ run, request, text, code, onCode }: CodeExportProps) {
  const flags = useCommandFlags();
  const shown = { ...request, prompt: text };
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
      <Code text={code === "command" ? steerCommand(run.name, shown, flags) : steerPython(run.name, shown)} />
    </section>
  );
}
