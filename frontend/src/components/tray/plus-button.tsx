/** Toggle button that adds an expert to the tray or removes it. */

import { Icon } from "@/components/ui/icon";

import { useTray } from "./tray-context";

interface PlusButtonProps {
  readonly expert: number;
  /** The expert's run; by default the current one. */
  readonly run?: string | undefined;
  /** Reason why the button is disabled, shown as its tooltip. */
  readonly disabledReason?: string;
}

export function PlusButton({ expert, run, disabledReason }: PlusButtonProps) {
  const tray = useTray();
  const isInTray = tray.has(expert, run);
  return (
    <button
      type="button"
      className={isInTray ? "plus in" : "plus"}
      aria-pressed={isInTray}
      aria-label={`Expert ${expert} in the tray`}
      title={disabledReason ?? (isInTray ? "Remove from tray" : "Add to tray")}
      disabled={disabledReason !== undefined}
      onClick={(event) => {
        event.stopPropagation();
        tray.toggle(expert, run);
      }}
    >
      <Icon name={isInTray ? "check" : "plus"} />
    </button>
  );
}
