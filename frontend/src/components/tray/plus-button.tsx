/** Puts an expert in the tray, or takes it out. */

import { Icon } from "../icon";
import { useTray } from "./tray-context";

interface PlusButtonProps {
  readonly expert: number;
  /** Its run, where that is of another layer than the one that the page is about. */
  readonly run?: string | undefined;
  /** Why it cannot be used here, such as an expert of another run. */
  readonly refused?: string;
}

export function PlusButton({ expert, run, refused }: PlusButtonProps) {
  const tray = useTray();
  const inside = tray.has(expert, run);
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
        tray.toggle(expert, run);
      }}
    >
      <Icon name={inside ? "check" : "plus"} />
    </button>
  );
}
