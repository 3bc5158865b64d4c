/** A button that opens a menu of actions. */

import type { ReactNode } from "react";
import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";

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
