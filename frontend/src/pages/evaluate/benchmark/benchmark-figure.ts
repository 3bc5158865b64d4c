/** Paired differences from the first run, and mean scores of all subjects, by number of units per probe. */

import type { BenchmarkScore, BenchmarkSubject, BenchmarkSummary } from "@/api/types";
import { withLegend } from "@/components/plots/axes/legend";
import type { ViewedFigure } from "@/components/plots/figure/figure-view";
import { formatFixed } from "@/lib/text/format";

import { formatDifference } from "./benchmark-verdict";

const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "cross", "star"];
const CHANCE = 0.5;
const PADDING = 0.02;
const ROW_HEIGHT = 21;
const MARGINS = 120;

/** `0.753 (0.652 to 0.854)`. */
export function formatScore({ mean, low, high }: BenchmarkScore): string {
  return `${formatFixed(mean, 3)} (${formatFixed(low, 3)} to ${formatFixed(high, 3)})`;
}

/** Height of a figure with a row per subject and number of units. */
export const benchmarkHeight = (subjects: number, { settings }: BenchmarkSummary) =>
  MARGINS + ROW_HEIGHT * subjects * settings.units.length;

interface Traced {
  readonly subjects: readonly BenchmarkSubject[];
  readonly intervals: readonly BenchmarkScore[];
  readonly text: (interval: BenchmarkScore) => string;
}

/** One trace per subject. `all` fixes its symbol, so that it has the same one in both figures. */
function traces({ subjects, intervals, text }: Traced, all: readonly BenchmarkSubject[]) {
  return subjects.map((subject) => {
    const { name, kind } = subject;
    const place = all.indexOf(subject);
    const own = intervals.filter((one) => one.subject === name);
    return {
      type: "scatter",
      mode: "markers",
      name,
      orientation: "h",
      offsetgroup: name,
      meta: { role: place === 0 ? "this-run" : kind === "run" ? "other" : "reference" },
      marker: { symbol: SYMBOLS[place % SYMBOLS.length], size: place === 0 ? 9 : 8 },
      x: own.map(({ mean }) => mean),
      y: own.map(({ units }) => String(units)),
      text: own.map(text),
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
}

function figureOf(name: string, title: string, xaxis: object, traced: Traced, summary: BenchmarkSummary): ViewedFigure {
  return withLegend({
    name,
    title,
    data: traces(traced, summary.subjects),
    layout: {
      meta: { columns: { label: "" } },
      scattermode: "group",
      scattergap: 0.25,
      xaxis,
      yaxis: {
        title: { text: "units per probe" },
        type: "category",
        categoryarray: summary.settings.units.map(String),
        autorange: "reversed",
        showgrid: false,
        showdividers: true,
      },
    },
  });
}

export function scoreFigure(summary: BenchmarkSummary): ViewedFigure {
  const { subjects, scores } = summary;
  const lowest = Math.min(CHANCE, ...scores.map(({ low }) => low));
  const highest = Math.max(...scores.map(({ high }) => high));
  const xaxis = { title: { text: "ROC-AUC, 0.5 is chance" }, range: [lowest - PADDING, highest + PADDING] };
  const traced = { subjects, intervals: scores, text: formatScore };
  return figureOf("benchmark-scores", "Mean ROC-AUC by number of units per probe", xaxis, traced, summary);
}

export function differenceFigure(summary: BenchmarkSummary): ViewedFigure {
  const { subjects, differences } = summary;
  const [first, ...others] = subjects;
  const farthest = Math.max(...differences.flatMap(({ low, high }) => [-low, high])) + PADDING / 2;
  const xaxis = {
    title: { text: `ROC-AUC of ${first?.name ?? ""} minus the other’s` },
    range: [-farthest, farthest],
    zeroline: true,
  };
  const traced = { subjects: others, intervals: differences, text: formatDifference };
  return figureOf("benchmark-differences", "Paired differences", xaxis, traced, summary);
}
