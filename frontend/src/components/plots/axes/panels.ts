/** Heights of figures that depend on their number of panels or categories. */

import type { FigureData } from "@/api/types";
import { readTrace } from "@/components/plots/figure/figure-data";

const PANEL_HEIGHT = 168;
const PER_ROW = 3;
const MARGINS = 96;
const CATEGORY_HEIGHT = 46;

/** Height of a figure with three panels per row. */
export function panelsHeight(figure: FigureData): number {
  const panels = Object.keys(figure.layout).filter((name) => name.startsWith("yaxis")).length;
  return MARGINS + PANEL_HEIGHT * Math.ceil(panels / PER_ROW);
}

/** Height of a figure with categories on its y axis. */
export function categoriesHeight(figure: FigureData): number {
  const categories = new Set(figure.data.flatMap((trace) => readTrace(trace).y.map(String)));
  return MARGINS + CATEGORY_HEIGHT * Math.max(3, categories.size);
}
