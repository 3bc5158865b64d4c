/** Loss recovered by number of parameters, one point per evaluated run. */

import type { RunSummary } from "@/api/types";
import { logRange } from "@/components/plots/axes/axes";
import { withLegend } from "@/components/plots/axes/legend";
import { hoverLines } from "@/components/plots/figure/escape-markup";
import type { ViewedFigure } from "@/components/plots/figure/figure-view";
import { methodName } from "@/components/runs/run-labels";
import { formatCompact, formatCount, formatPercent } from "@/lib/text/format";

const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "cross", "star"];

type EvaluatedRun = RunSummary & { readonly held_out: NonNullable<RunSummary["held_out"]> };

/** Runs of the same MLP with held-out results: other MLPs have another loss to recover. */
export function evaluatedRuns(
  runs: readonly RunSummary[],
  { language_model: model, layer }: Pick<RunSummary, "language_model" | "layer">,
): readonly EvaluatedRun[] {
  return runs.filter(
    (run): run is EvaluatedRun => run.held_out !== null && run.language_model === model && run.layer === layer,
  );
}

function tipOf({ name, layer, method, parameters, k, held_out: { loss_recovered: found } }: EvaluatedRun): string {
  const [value, low, high] = [found.value, found.low, found.high].map((share) => formatPercent(share, 1));
  return hoverLines([
    `${name}, layer ${layer}`,
    `${methodName(method)}, K ${k}`,
    `${formatCount(parameters)} parameters`,
    `${value} % (${low} to ${high})`,
  ]);
}

export function sizeFigure(runs: readonly EvaluatedRun[], current: string): ViewedFigure {
  const sizes = runs.map(({ parameters }) => parameters);
  // Matched runs differ by a few parameters, which one tick stands for.
  const ticks = [...new Map(sizes.map((size) => [formatCompact(size), size])).values()];
  const data = runs
    .toSorted((a, b) => a.parameters - b.parameters || a.name.localeCompare(b.name, "en"))
    .map((run, i) => {
      const { value, low, high } = run.held_out.loss_recovered;
      return {
        type: "scatter",
        mode: "markers",
        name: run.name,
        meta: { role: run.name === current ? "this-run" : "other" },
        marker: { symbol: SYMBOLS[i % SYMBOLS.length], size: 9 },
        x: [run.parameters],
        y: [100 * value],
        error_y: {
          type: "data",
          symmetric: false,
          array: [100 * (high - value)],
          arrayminus: [100 * (value - low)],
          thickness: 1,
        },
        customdata: [run.name],
        hovertemplate: [tipOf(run)],
      };
    });
  return withLegend({
    name: "loss-recovered-by-parameters",
    title: "Loss recovered by number of parameters",
    data,
    layout: {
      meta: { columns: { series: "run", point: [] } },
      xaxis: {
        type: "log",
        title: { text: "parameters, log scale" },
        range: logRange(sizes),
        tickvals: ticks,
        ticktext: ticks.map(formatCompact),
        tickangle: 0,
        showgrid: false,
      },
      yaxis: { title: { text: "loss recovered, %" } },
    },
  });
}
