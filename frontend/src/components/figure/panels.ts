/** Figures that have several panels, or several things on an axis, need a height of their own. */

import type { FigureData } from "@/api/types";

import { readTrace } from "./figure-data";

const PANEL = 168;
const PER_ROW = 3;
const AROUND = 96;
const CATEGORY = 46;

/** Of a figure with a panel a class, three in a row. */
export function panelsHeight(figure: FigureData): number {
  const panels = Object.keys(figure.layout).filter((name) => name.startsWith("yaxis")).length;
  return AROUND + PANEL * Math.ceil(panels / PER_ROW);
}

/** Of a figure with categories down its side. */
export function categoriesHeight(figure: FigureData): number {
  const categories = new Set(figure.data.flatMap((trace) => readTrace(trace).y.map(String)));
  return AROUND + CATEGORY * Math.max(3, categories.size);
}
