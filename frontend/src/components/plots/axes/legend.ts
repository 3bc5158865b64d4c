/** Adds a legend to a figure whose traces differ by marker and dash. */

import type { FigureData } from "@/api/types";

export function withLegend<Figure extends Pick<FigureData, "layout">>(figure: Figure): Figure {
  return {
    ...figure,
    layout: {
      ...figure.layout,
      showlegend: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      margin: { l: 56, r: 16, t: 12, b: 44 },
    },
  };
}
