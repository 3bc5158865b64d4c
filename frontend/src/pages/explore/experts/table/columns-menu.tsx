/** Menu that shows and hides columns. */

import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";

import { canBeHidden } from "@/components/experts/columns";
import { TriggerButton } from "@/components/ui/button";
import type { ExpertsView } from "@/pages/explore/experts/experts-params";

import { useAvailableColumns } from "./use-available-columns";

interface ColumnsMenuProps {
  readonly run: string;
  readonly view: ExpertsView;
}

export function ColumnsMenu({ run, view: { columns: all, params, setParams } }: ColumnsMenuProps) {
  const columns = useAvailableColumns(run, all).filter(canBeHidden);
  return (
    <MenuTrigger>
      <TriggerButton className="btn columns-button">Columns</TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Menu
          aria-label="Columns"
          selectionMode="multiple"
          selectedKeys={columns.map(({ key }) => key).filter((key) => !params.hide.includes(key))}
          onSelectionChange={(keys) => {
            const hide = columns.map(({ key }) => key).filter((key) => keys !== "all" && !keys.has(key));
            setParams({ hide });
          }}
        >
          {columns.map((column) => (
            <MenuItem key={column.key} id={column.key}>
              {column.header}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
