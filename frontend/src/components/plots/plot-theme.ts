/** Applies the theme's colours and fonts to figures, by the role of each trace. */

import type { Data, Layout, LayoutAxis } from "plotly.js";
import { useMemo, useSyncExternalStore } from "react";

import type { FigureData } from "@/api/types";
import { currentTheme, resolvedTheme, subscribeTheme } from "@/lib/browser/stores";

import { escapeFields, readTrace } from "./figure";

const NAMES = {
  surface: "--surface",
  raised: "--raised",
  line: "--line",
  lineStrong: "--line-strong",
  ink: "--ink",
  ink2: "--ink-2",
  ink3: "--ink-3",
  mark: "--mark",
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

interface RoleStyle {
  readonly colour: keyof Palette;
  readonly width: number;
  readonly opacity?: number;
}

const DEFAULT_STYLE: RoleStyle = { colour: "mark", width: 1.25 };
/** Traces of the current run or the selection have the accent colour, all others are grey. */
const ROLE_STYLES: Readonly<Record<string, RoleStyle>> = {
  "this-run": { colour: "accent", width: 2 },
  raw: { colour: "accent", width: 1, opacity: 0.35 },
  expert: { colour: "mark", width: 1 },
  reference: { colour: "ink3", width: 1 },
};

const FONT_STACK = '"Inter Variable", Inter, system-ui, sans-serif';

/** Fields of traces, axes and annotations that hold labels, tokens or names. Templates are ours. */
const TRACE_TEXTS = ["text", "hovertext", "customdata", "name", "x", "y"];
const AXIS_TEXTS = ["ticktext", "tickvals", "categoryarray"];
const ANNOTATION_TEXTS = ["text", "hovertext"];

/** Text shadow that keeps labels readable on top of points. */
const halo = (colour: string) => `0 0 3px ${colour}, 0 0 3px ${colour}, 0 0 2px ${colour}`;

function themedTrace(raw: Readonly<Record<string, unknown>>, palette: Palette): Data {
  const trace = readTrace(raw);
  const style = ROLE_STYLES[trace.role] ?? DEFAULT_STYLE;
  const colour = palette[style.colour];
  const marker = raw.marker ?? {};
  const line = raw.line ?? {};
  return {
    hoverlabel: { align: "left" },
    ...raw,
    ...escapeFields(raw, TRACE_TEXTS),
    opacity: style.opacity ?? 1,
    marker: { ...(trace.role === "expert" && { opacity: 0.7 }), ...marker, color: colour },
    ...(trace.type.startsWith("scatter") && { line: { width: style.width, ...line, color: colour } }),
    ...(trace.role === "expert" && {
      selected: { marker: { color: palette.accent, opacity: 1 } },
      unselected: { marker: { opacity: 0.4 } },
    }),
    textfont: { color: palette.ink, size: 13, family: FONT_STACK, shadow: halo(palette.surface) },
  };
}

function themedAxis(raw: unknown, palette: Palette): Partial<LayoutAxis> {
  const axis = raw as Record<string, unknown> & Partial<LayoutAxis>;
  const title = typeof axis.title === "string" ? { text: axis.title } : axis.title;
  return {
    automargin: true,
    zeroline: false,
    ...axis,
    ...escapeFields(axis, AXIS_TEXTS),
    ...(title !== undefined && { title: { standoff: 6, ...title, font: { color: palette.ink2, size: 13 } } }),
    gridcolor: palette.line,
    linecolor: palette.lineStrong,
    tickcolor: palette.lineStrong,
    tickfont: { color: palette.ink3, size: 13 },
  };
}

function themedAnnotations(raw: unknown, palette: Palette): object[] {
  const annotations = Array.isArray(raw) ? (raw as Readonly<Record<string, unknown>>[]) : [];
  return annotations.map((annotation) => ({
    ...annotation,
    ...escapeFields(annotation, ANNOTATION_TEXTS),
    // A background keeps the axis title readable on the grid lines.
    ...(annotation.name === "corner" && { bgcolor: palette.surface, borderpad: 1 }),
  }));
}

export function themeFigure(figure: Pick<FigureData, "data" | "layout">, palette: Palette) {
  const axes = Object.entries(figure.layout).filter(([name]) => /^[xy]axis\d*$/.test(name));
  const plain = { xaxis: {}, yaxis: {}, ...Object.fromEntries(axes) };
  const styled = Object.entries(plain).map(([name, axis]) => [name, themedAxis(axis, palette)]);
  return {
    data: figure.data.map((trace) => themedTrace(trace, palette)),
    layout: {
      margin: { l: 44, r: 12, t: 8, b: 34, pad: 0 },
      showlegend: false,
      ...figure.layout,
      ...(Object.fromEntries(styled) as object),
      annotations: themedAnnotations(figure.layout.annotations, palette),
      title: { text: "" },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: FONT_STACK, size: 13, color: palette.ink2 },
      hoverlabel: {
        bgcolor: palette.raised,
        bordercolor: palette.lineStrong,
        font: { color: palette.ink, size: 13, family: FONT_STACK },
      },
      newselection: { line: { color: palette.accent, width: 1.25, dash: "dash" } },
      activeselection: { fillcolor: palette.accentSoft, opacity: 0.4 },
      modebar: { remove: [] },
    } as Partial<Layout>,
  };
}
