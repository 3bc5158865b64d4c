/** Height of figures that depends on their number of panels. */

import type { FigureData } from "@/api/types";

const PANEL_HEIGHT = 168;
const PER_ROW = 3;
const MARGINS = 96;

/** Height of a figure with three panels per row. */
export function panelsHeight(figure: FigureData): number {
  const panels = Object.keys(figure.layout).filter((name) => name.startsWith("yaxis")).length;
  return MARGINS + PANEL_HEIGHT * Math.ceil(panels / PER_ROW);
}
