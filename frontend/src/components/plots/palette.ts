/** The stylesheet's colours, resolved for the current theme, as Plotly requires. */

import { useMemo, useSyncExternalStore } from "react";

import { currentTheme, resolvedTheme, subscribeTheme } from "@/lib/browser/theme";

const NAMES = {
  surface: "--surface",
  raised: "--raised",
  line: "--line",
  lineStrong: "--line-strong",
  ink: "--ink",
  ink2: "--ink-2",
  ink3: "--ink-3",
  mark: "--mark",
  markSoft: "--mark-soft",
  accent: "--accent",
  accentSoft: "--accent-soft",
} as const;

export type Palette = Readonly<Record<keyof typeof NAMES, string>>;

/** light-dark() resolves only where a colour is used, so a temporary element uses each one. */
export function readPalette(): Palette {
  const probe = document.createElement("span");
  // With reduced motion every change is a very short transition, which would start at the previous colour.
  probe.style.transitionProperty = "none";
  document.body.append(probe);
  const style = getComputedStyle(probe);
  const read = (name: string) => {
    probe.style.color = `var(${name})`;
    return style.color;
  };
  const entries = Object.entries(NAMES).map(([key, name]) => [key, read(name)] as const);
  probe.remove();
  return Object.fromEntries(entries) as Record<keyof typeof NAMES, string>;
}

/** The palette of the current theme. */
export function usePalette(): Palette {
  const theme = useSyncExternalStore(subscribeTheme, () => `${currentTheme()} ${resolvedTheme()}`);
  // eslint-disable-next-line react-hooks/exhaustive-deps -- the palette depends on the theme through the stylesheet
  return useMemo(() => readPalette(), [theme]);
}
