/** A button that opens a menu of actions, and the one that saves a result as CSV or JSON. */

import type { ReactNode } from "react";
import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";

import { saveFile } from "@/lib/browser/save-file";

import { TriggerButton } from "./button";
import { Icon } from "./icon";

interface ActionMenuProps<K extends string> {
  readonly label: string;
  /** Names of the actions by key. */
  readonly actions: Readonly<Record<K, string>>;
  readonly onAction: (key: K) => void;
  readonly className?: string;
  readonly isDisabled?: boolean;
  /** Content of the button. Default: the download icon. */
  readonly children?: ReactNode;
}

export function ActionMenu<K extends string>(props: ActionMenuProps<K>) {
  const { label, actions, onAction, className = "btn sm icon", isDisabled = false, children } = props;
  return (
    <MenuTrigger>
      <TriggerButton className={className} aria-label={label} isDisabled={isDisabled}>
        {children ?? <Icon name="download" />}
      </TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Menu aria-label={label} onAction={(key) => onAction(key as K)}>
          {Object.entries<string>(actions).map(([key, name]) => (
            <MenuItem key={key} id={key}>
              {name}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}

interface ExportMenuProps {
  /** Of the file, without its ending. */
  readonly name: string;
  readonly csv: () => string;
  readonly json: () => unknown;
  readonly isDisabled?: boolean;
}

export function ExportMenu({ name, csv, json, isDisabled = false }: ExportMenuProps) {
  const save = (format: "csv" | "json") => {
    if (format === "csv") saveFile(`${name}.csv`, csv(), "text/csv");
    else saveFile(`${name}.json`, JSON.stringify(json(), null, 2), "application/json");
  };
  return (
    <ActionMenu
      label="Export"
      actions={{ csv: "CSV", json: "JSON" }}
      onAction={save}
      className="btn"
      isDisabled={isDisabled}
    >
      <Icon name="download" /> Export
    </ActionMenu>
  );
}
