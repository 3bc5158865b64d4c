/** Mean ROC-AUC of each subject by number of units, with intervals over data sets. The first run is highlighted. */

import type { BenchmarkScore, BenchmarkSummary } from "@/api/types";
import { withLegend } from "@/components/plots/axes/legend";
import type { ViewedFigure } from "@/components/plots/figure/figure-view";
import { formatFixed } from "@/lib/text/format";

const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "cross", "star"];
const CHANCE = 0.5;
const PADDING = 0.02;
const ROW_HEIGHT = 21;
const MARGINS = 120;

/** `0.753 (0.652 to 0.854)`. */
export function formatScore({ mean, low, high }: BenchmarkScore): string {
  return `${formatFixed(mean, 3)} (${formatFixed(low, 3)} to ${formatFixed(high, 3)})`;
}

export function benchmarkHeight({ subjects, settings }: BenchmarkSummary): number {
  return MARGINS + ROW_HEIGHT * subjects.length * settings.units.length;
}

export function benchmarkFigure({ subjects, scores, settings }: BenchmarkSummary): ViewedFigure {
  const data = subjects.map(({ name, kind }, i) => {
    const own = scores.filter(({ subject }) => subject === name);
    return {
      type: "scatter",
      mode: "markers",
      name,
      orientation: "h",
      offsetgroup: name,
      meta: { role: i === 0 ? "this-run" : kind === "run" ? "other" : "reference" },
      marker: { symbol: SYMBOLS[i % SYMBOLS.length], size: i === 0 ? 9 : 8 },
      x: own.map(({ mean }) => mean),
      y: own.map(({ units }) => String(units)),
      text: own.map(formatScore),
      error_x: {
        type: "data",
        symmetric: false,
        array: own.map(({ mean, high }) => high - mean),
        arrayminus: own.map(({ mean, low }) => mean - low),
        thickness: 1,
      },
      hovertemplate: "%{fullData.name}, units: %{y}<br>%{text}<extra></extra>",
    };
  });
  const lowest = Math.min(CHANCE, ...scores.map(({ low }) => low));
  const highest = Math.max(...scores.map(({ high }) => high));
  return withLegend({
    name: "benchmark",
    title: "Mean ROC-AUC by number of units per probe",
    data,
    layout: {
      scattermode: "group",
      scattergap: 0.25,
      xaxis: { title: { text: "ROC-AUC, 0.5 is chance" }, range: [lowest - PADDING, highest + PADDING] },
      yaxis: {
        title: { text: "units per probe" },
        type: "category",
        categoryarray: settings.units.map(String),
        autorange: "reversed",
        showgrid: false,
        showdividers: true,
      },
    },
  });
}
