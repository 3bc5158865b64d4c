/** Selector of the current run: a button until it is pressed, which loads the list of runs. */

import { type KeyboardEvent, useState } from "react";
import { flushSync } from "react-dom";

import { useCurrentRun } from "@/components/runs/current-run";
import { runSummaryLine } from "@/components/runs/run-labels";
import { Icon } from "@/components/ui/icon";

const importRunSelect = () => import("./run-select");
type RunSelect = Awaited<ReturnType<typeof importRunSelect>>["default"];

const missingLine = (numRuns: number) => (numRuns === 0 ? "create one with mxd train" : "not found, choose another");

export function RunChooser() {
  const { name, summary, runs } = useCurrentRun();
  const [loaded, setLoaded] = useState<{ readonly RunSelect: RunSelect } | null>(null);
  const [isOpen, setOpen] = useState(false);
  const preload = () => void importRunSelect().catch(() => undefined);
  const open = () => {
    importRunSelect().then(
      (module) => {
        // The new button takes the focus before the list opens, so that it gets it back.
        flushSync(() => setLoaded({ RunSelect: module.default }));
        setOpen(true);
      },
      () => undefined,
    );
  };
  const openOnArrow = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") open();
  };
  const content = (
    <>
      <b>{name ?? "No runs yet"}</b>
      <span className="line">{summary === null ? missingLine(runs.length) : runSummaryLine(summary)}</span>
    </>
  );
  const icon = <Icon name="chevronDown" />;
  if (loaded !== null) {
    return <loaded.RunSelect {...{ icon, isOpen, onOpenChange: setOpen }}>{content}</loaded.RunSelect>;
  }
  return (
    <div className="run-select">
      <button
        type="button"
        className="runpick"
        aria-haspopup="listbox"
        aria-expanded={false}
        disabled={runs.length === 0}
        onPointerEnter={preload}
        onFocus={preload}
        onClick={open}
        onKeyDown={openOnArrow}
      >
        <span>{content}</span>
        {icon}
        <span className="sr">Run</span>
      </button>
    </div>
  );
}
