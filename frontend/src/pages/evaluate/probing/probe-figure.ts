/** Scores of the best expert, the best neuron and a random gate per class, with intervals. */

import type { ProbeSummary } from "@/api/types";
import { withLegend } from "@/components/plots/axes/legend";
import type { ViewedFigure } from "@/components/plots/figure/figure-view";

import { intervalOf, type Metric, METRIC_NAMES, type ProbedClass, scoreOf, scoreText } from "./probe-metrics";

const ROW_HEIGHT = 46;
const MARGINS = 96;
const PADDING = 0.02;
const SERIES = [
  ["top1", "best expert", "circle"],
  ["neuron", "best MLP neuron", "triangle-up"],
  ["random_gate", "random gate", "diamond"],
] as const;

/** F1 begins at 0; the other two are 0.5 by chance. */
const CHANCE: Readonly<Record<Metric, number | null>> = { f1: null, "roc-auc": 0.5, "balanced-accuracy": 0.5 };

export const probeFigureHeight = ({ classes }: ProbeSummary) => MARGINS + ROW_HEIGHT * Math.max(3, classes.length);

function trace(classes: readonly ProbedClass[], metric: Metric, [kind, name, symbol]: (typeof SERIES)[number]) {
  const scores = classes.map(({ [kind]: score }) => score);
  const ends = scores.map((score) => {
    const [value, interval] = [scoreOf(score, metric) ?? 0, intervalOf(score, metric)];
    return interval === null ? [null, null] : [value - interval[0], interval[1] - value];
  });
  return {
    type: "scatter",
    mode: "markers",
    name,
    orientation: "h",
    offsetgroup: name,
    meta: { role: kind === "top1" ? "this-run" : "reference" },
    marker: { symbol, size: kind === "top1" ? 9 : 7 },
    x: scores.map((score) => scoreOf(score, metric)),
    y: classes.map((probed) => probed.name),
    text: scores.map((score) => scoreText(score, metric)),
    error_x: {
      type: "data",
      symmetric: false,
      array: ends.map(([, above]) => above),
      arrayminus: ends.map(([below]) => below),
      thickness: 1,
    },
    hovertemplate: `%{y}, ${name}<br>${METRIC_NAMES[metric]} %{text}<extra></extra>`,
  };
}

/** From 0 for F1, otherwise from chance or the lowest end of an interval. */
function lowest(classes: readonly ProbedClass[], metric: Metric): number {
  const ends = classes.flatMap((probed) =>
    SERIES.map(([kind]) => intervalOf(probed[kind], metric)?.[0] ?? scoreOf(probed[kind], metric) ?? 1),
  );
  return CHANCE[metric] === null ? 0 : Math.min(CHANCE[metric], ...ends) - PADDING;
}

export function probeFigure({ classes }: ProbeSummary, metric: Metric): ViewedFigure {
  const chance = CHANCE[metric];
  const name = METRIC_NAMES[metric];
  return withLegend({
    name: "probing",
    title: `${name} per class`,
    data: SERIES.map((series) => trace(classes, metric, series)),
    layout: {
      meta: { columns: { label: "", y: "class" } },
      scattermode: "group",
      scattergap: 0.25,
      xaxis: {
        title: { text: chance === null ? `${name} on test texts` : `${name} on test texts, ${chance} is chance` },
        range: [lowest(classes, metric), 1 + PADDING],
      },
      yaxis: { autorange: "reversed", type: "category", showgrid: false, showdividers: true },
    },
  });
}
