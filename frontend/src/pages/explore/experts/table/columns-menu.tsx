/** Menu that shows and hides columns. */

import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";

import { TriggerButton } from "@/components/ui/button";
import { type ExpertsParams, OPTIONAL_COLUMNS, type SetExpertsParams } from "@/pages/explore/experts/experts-params";

import { HEADERS } from "./columns";
import { useAvailableColumns } from "./use-available-columns";

interface ColumnsMenuProps {
  readonly run: string;
  readonly params: ExpertsParams;
  readonly setParams: SetExpertsParams;
}

export function ColumnsMenu({ run, params, setParams }: ColumnsMenuProps) {
  const available = useAvailableColumns(run);
  const columns = OPTIONAL_COLUMNS.filter((column) => available.includes(column));
  return (
    <MenuTrigger>
      <TriggerButton className="btn columns-button">Columns</TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Menu
          aria-label="Columns"
          selectionMode="multiple"
          selectedKeys={columns.filter((column) => !params.hide.includes(column))}
          onSelectionChange={(keys) => {
            const hide = columns.filter((column) => keys !== "all" && !keys.has(column));
            setParams({ hide });
          }}
        >
          {columns.map((column) => (
            <MenuItem key={column} id={column}>
              {HEADERS[column].title}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
