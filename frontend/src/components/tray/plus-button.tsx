/** Puts an expert in the tray, or takes it out. */

import { Icon } from "../icon";
import { useTray } from "./tray-context";

interface PlusButtonProps {
  readonly expert: number;
  /** Why it cannot be used here, such as an expert of another run. */
  readonly refused?: string;
}

export function PlusButton({ expert, refused }: PlusButtonProps) {
  const tray = useTray();
  const inside = tray.has(expert);
  return (
    <button
      type="button"
      className={inside ? "plus in" : "plus"}
      aria-pressed={inside}
      aria-label={`Expert ${expert} in the tray`}
      title={refused ?? (inside ? "In the tray; take it out" : "Add to the tray")}
      disabled={refused !== undefined}
      onClick={(event) => {
        event.stopPropagation();
        tray.toggle(expert);
      }}
    >
      <Icon name={inside ? "check" : "plus"} />
    </button>
  );
}
