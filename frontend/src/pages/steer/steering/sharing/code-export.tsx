/** The same generation as a shell command and as Python code. */

import type { RunSummary, SteeringRequest } from "@/api/types";
import { Command } from "@/components/ui/copyable-command";
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
  const write = code === "command" ? steerCommand : steerPython;
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
      <Command text={write(run.name, { ...request, prompt: text })} />
    </section>
  );
}
