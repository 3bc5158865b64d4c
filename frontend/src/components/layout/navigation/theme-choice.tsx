import { useSyncExternalStore } from "react";

import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { chooseTheme, currentTheme, subscribeTheme } from "@/lib/browser/theme";

export function ThemeChoice() {
  const theme = useSyncExternalStore(subscribeTheme, currentTheme);
  return (
    <SegmentedControl
      label="Theme"
      className="fill"
      value={theme}
      onChange={chooseTheme}
      segments={[
        { value: "auto", label: "Auto" },
        { value: "light", label: <Icon name="sun" />, name: "Light" },
        { value: "dark", label: <Icon name="moon" />, name: "Dark" },
      ]}
    />
  );
}
