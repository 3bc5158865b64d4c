/** A choice of another run, to compare the current one with. */

import { ListBox, ListBoxItem, Popover, Select, SelectValue } from "react-aria-components";

import type { RunSummary } from "@/api/types";
import { TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";

import { RunOption } from "./run-labels";

/** The key of no run. */
const NONE = "—";

interface RunPickerProps {
  readonly label: string;
  readonly runs: readonly RunSummary[];
  readonly value: string | null;
  /** Receives null for no run, which can be chosen if there is a text for it. */
  readonly onChange: (run: string | null) => void;
  readonly none?: string;
}

export function RunPicker({ label, runs, value, onChange, none }: RunPickerProps) {
  const items = runs.map((run) => ({ id: run.name, run }));
  return (
    <Select aria-label={label} value={value ?? NONE} onChange={(key) => onChange(key === NONE ? null : String(key))}>
      <TriggerButton className="btn sm">
        <SelectValue className={value === null ? "" : "mono"}>{() => value ?? none}</SelectValue>
        <Icon name="chevronDown" />
      </TriggerButton>
      <Popover className="popover" placement="bottom start">
        <ListBox items={none === undefined ? items : [{ id: NONE, run: null }, ...items]}>
          {({ run }) => (run === null ? <ListBoxItem id={NONE}>None</ListBoxItem> : <RunOption run={run} />)}
        </ListBox>
      </Popover>
    </Select>
  );
}
