/** Menu that shows and hides columns. */

import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";

import { TriggerButton } from "@/components/ui/button";
import { type ExpertsParams, OPTIONAL_COLUMNS, type SetExpertsParams } from "@/pages/explore/experts/experts-params";

import { HEADERS } from "./columns";

interface ColumnsMenuProps {
  readonly params: ExpertsParams;
  readonly setParams: SetExpertsParams;
}

export function ColumnsMenu({ params, setParams }: ColumnsMenuProps) {
  const visible = OPTIONAL_COLUMNS.filter((column) => !params.hide.includes(column));
  return (
    <MenuTrigger>
      <TriggerButton className="btn columns-button">Columns</TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Menu
          aria-label="Columns"
          selectionMode="multiple"
          selectedKeys={visible}
          onSelectionChange={(keys) => {
            const hide = OPTIONAL_COLUMNS.filter((column) => keys !== "all" && !keys.has(column));
            setParams({ hide });
          }}
        >
          {OPTIONAL_COLUMNS.map((column) => (
            <MenuItem key={column} id={column}>
              {HEADERS[column]?.title}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
