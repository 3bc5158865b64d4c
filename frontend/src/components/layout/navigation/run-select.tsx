/** The run chooser with its list of runs. */

import type { ReactNode } from "react";
import { ListBox, Popover, Select, SelectValue } from "react-aria-components";
import { useLocation, useNavigate } from "react-router";

import { useCurrentRun } from "@/components/runs/current-run";
import { RunOption } from "@/components/runs/run-option";
import { TriggerButton } from "@/components/ui/button";

/** The same section for another run; parameters specific to the old run are dropped. */
function urlForRun(pathname: string, run: string): string {
  if (pathname.startsWith("/runs/")) return `/runs/${encodeURIComponent(run)}`;
  const section = /^\/[^/]*/.exec(pathname)?.[0] ?? "/";
  return `${section}?run=${encodeURIComponent(run)}`;
}

interface RunSelectProps {
  readonly className: string;
  readonly buttonClass: string;
  /** Content of the button. */
  readonly children: ReactNode;
  readonly icon: ReactNode;
  readonly isOpen: boolean;
  readonly onOpenChange: (isOpen: boolean) => void;
}

export default function RunSelect(props: RunSelectProps) {
  const { className, buttonClass, children, icon, isOpen, onOpenChange } = props;
  const { name, runs } = useCurrentRun();
  const { pathname } = useLocation();
  const navigate = useNavigate();
  return (
    <Select
      aria-label="Run"
      className={className}
      value={name}
      isOpen={isOpen}
      onOpenChange={onOpenChange}
      // eslint-disable-next-line jsx-a11y/no-autofocus -- it replaces the button that was pressed
      autoFocus
      onChange={(key) => {
        if (key !== null && key !== name) void navigate(urlForRun(pathname, String(key)));
      }}
    >
      <TriggerButton className={buttonClass}>
        <SelectValue>{() => children}</SelectValue>
        {icon}
      </TriggerButton>
      <Popover className="popover" placement="bottom start">
        <ListBox items={runs.map((run) => ({ run, id: run.name }))}>{({ run }) => <RunOption run={run} />}</ListBox>
      </Popover>
    </Select>
  );
}
