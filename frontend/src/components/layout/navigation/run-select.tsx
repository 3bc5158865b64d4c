/** The run chooser with its list of runs. */

import type { ReactNode } from "react";
import { ListBox, Popover, Select, SelectValue } from "react-aria-components";
import { useLocation, useNavigate } from "react-router";

import { useCurrentRun } from "@/components/runs/current-run";
import { byLayer, RunOption } from "@/components/runs/run-labels";
import { urlForRun } from "@/components/runs/page-links";
import { useTray } from "@/components/tray/tray-context";
import { TriggerButton } from "@/components/ui/button";
import { formatEdits } from "@/lib/edits/edits";
import { viewFrom, withRuns } from "@/lib/edits/tray";

interface RunSelectProps {
  /** Content of the button. */
  readonly children: ReactNode;
  readonly icon: ReactNode;
  readonly isOpen: boolean;
  readonly onOpenChange: (isOpen: boolean) => void;
}

export default function RunSelect(props: RunSelectProps) {
  const { children, icon, isOpen, onOpenChange } = props;
  const { name, runs } = useCurrentRun();
  const { edits } = useTray();
  const location = useLocation();
  const navigate = useNavigate();
  const choose = (chosen: string) => {
    const summary = runs.find((run) => run.name === chosen);
    if (summary === undefined || chosen === name) return;
    const seen = viewFrom(withRuns(edits, name ?? chosen), summary, runs).shown;
    void navigate(urlForRun(location, name, chosen, formatEdits(seen)));
  };
  return (
    <Select
      aria-label="Run"
      className="run-select"
      value={name}
      isOpen={isOpen}
      onOpenChange={onOpenChange}
      // eslint-disable-next-line jsx-a11y/no-autofocus -- it replaces the button that was pressed
      autoFocus
      onChange={(key) => choose(String(key))}
    >
      <TriggerButton className="runpick">
        <SelectValue>{() => children}</SelectValue>
        {icon}
      </TriggerButton>
      <Popover className="popover" placement="bottom end">
        <ListBox items={runs.toSorted(byLayer).map((run) => ({ run, id: run.name }))}>
          {({ run }) => <RunOption run={run} />}
        </ListBox>
      </Popover>
    </Select>
  );
}
