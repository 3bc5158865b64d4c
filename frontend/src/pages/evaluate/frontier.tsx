/** Frontier of a layer: loss increase and error of its runs against K. */

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useNavigate } from "react-router";

import { evaluationsQuery } from "@/api/queries";
import type { Frontier as FrontierData, FrontierPoint, RunSummary } from "@/api/types";
import { logTicks } from "@/components/plots/axes/axes";
import { withLegend } from "@/components/plots/axes/legend";
import { hoverLines } from "@/components/plots/figure/escape-markup";
import { FigureView, type ViewedFigure } from "@/components/plots/figure/figure-view";
import { evaluateCommand } from "@/components/runs/latest-evaluation";
import { usePageLinks } from "@/components/runs/page-links";
import { shortSource } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";

import { DotTable } from "./dots";

const DASHES = ["solid", "dash", "dot", "dashdot"];
const SYMBOLS = ["circle", "square", "triangle-up", "diamond"];

/** Loss increase against K, one line per run. Hollow points keep fewer experts than the run was trained with. */
function lossFigure({ lines }: FrontierData): ViewedFigure {
  const losses = lines.flatMap(({ points }) => points.map((point) => point.loss_increase));
  const ks = [...new Set(lines.flatMap(({ points }) => points.map(({ k }) => k)))].sort((a, b) => a - b);
  const data = lines.map(({ name, own, points }, i) => {
    const symbol = SYMBOLS[i % SYMBOLS.length] ?? "circle";
    const estimates = points.map((point) => point.loss_increase);
    return {
      type: "scatter",
      mode: "lines+markers",
      name,
      meta: { role: own ? "this-run" : "other" },
      line: { dash: DASHES[i % DASHES.length] },
      marker: { symbol: points.map(({ k, trained_k: trained }) => (k < trained ? `${symbol}-open` : symbol)), size: 9 },
      x: points.map(({ k }) => k),
      y: estimates.map(({ value }) => value),
      error_y: {
        type: "data",
        symmetric: false,
        array: estimates.map(({ value, high }) => high - value),
        arrayminus: estimates.map(({ value, low }) => value - low),
        thickness: 1.25,
      },
      customdata: points.map(({ runs }) => runs[0]),
      hovertemplate: points.map((point) =>
        hoverLines([
          name,
          `K ${point.k}${point.k === point.trained_k ? "" : `, trained at ${point.trained_k}`}`,
          `${formatFixed(point.loss_increase.value, 4)} nats per token`,
          `${formatCount(point.parameters)} parameters`,
        ]),
      ),
    };
  });
  return withLegend({
    name: "loss-frontier",
    title: "Loss increase against K",
    data,
    layout: {
      meta: { columns: { series: "run", point: [], x: "K", y: "loss increase, nats" } },
      xaxis: {
        type: "log",
        title: { text: "K, experts active per token, log scale" },
        tickvals: ks,
        ticktext: ks.map(String),
        showgrid: false,
      },
      yaxis: {
        type: "log",
        title: { text: "loss increase, nats per token, log scale" },
        ...logTicks(losses.flatMap(({ low, high }) => [low, high])),
      },
    },
  });
}

interface Measure {
  readonly key: "loss_increase" | "difference" | "normalized_mse" | "routing_share" | "strict_routing_share";
  readonly head: ReactNode;
  readonly format: (value: number) => string;
}

const fixed = (value: number) => formatFixed(value, 4);
const percent = (share: number) => `${formatPercent(share, 1)} %`;

const MEASURES: readonly Measure[] = [
  { key: "loss_increase", head: <Term id="loss_increase_of_run">Loss increase</Term>, format: fixed },
  { key: "difference", head: "Loss of the current run minus this", format: (value) => formatSigned(value, 4) },
  { key: "normalized_mse", head: <Term id="normalised_mse">Normalised MSE</Term>, format: fixed },
  { key: "routing_share", head: <Term id="routing_share">Routing share</Term>, format: percent },
  {
    key: "strict_routing_share",
    head: <Term id="strict_routing_share">Strict routing share</Term>,
    format: percent,
  },
];

const pointName = (name: string, { k, trained_k: trained }: FrontierPoint) =>
  `${name}, K ${k}${k === trained ? "" : ` (trained at ${trained})`}`;

/** Every point with its intervals. */
function Points({ frontier: { lines } }: { readonly frontier: FrontierData }) {
  const rows = lines.flatMap(({ name, points }) =>
    points.map((point) => ({
      key: pointName(name, point),
      head: pointName(name, point),
      format: (value: number, column: number) => (MEASURES[column]?.format ?? String)(value),
      dots: MEASURES.map(({ key }) => point[key]),
    })),
  );
  const columns = MEASURES.map(({ key, head }) => ({ key, name: key.replaceAll("_", " "), head }));
  return <DotTable label="Points of the frontier" corner="Run" axis="column" columns={columns} rows={rows} />;
}

export function Frontier({ run }: { readonly run: RunSummary }) {
  const links = usePageLinks();
  const navigate = useNavigate();
  const { data, error, refetch } = useQuery(evaluationsQuery(run.name));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading frontier" rows={12} rowHeight={36} />;
  const { frontier } = data;
  if (frontier === null)
    return (
      <EmptyState title="Not evaluated yet">
        Evaluate the runs of a layer on held-out text to compare them here. The command accepts several runs:
        <Command text={evaluateCommand(run.name)} />
      </EmptyState>
    );
  const fewer = [...new Set([4, 2, 1].map((factor) => Math.max(1, Math.round(run.k / factor))))].join(",");
  const sample =
    run.held_out === null ? "HELD_OUT_TEXT --tokens 100k" : `${run.held_out.text} --tokens ${run.held_out.tokens}`;
  return (
    <section className="pane settings">
      <FigureView
        figure={lossFigure(frontier)}
        note={`${formatCount(frontier.tokens)} tokens in ${formatCount(frontier.sequences)} sequences of ${shortSource(frontier.text)}${frontier.seen_text ? ", which the run was trained on" : ""}; hollow: trained at a larger K, of which only the most active experts are kept`}
        height={340}
        onClick={(point) => {
          if (typeof point.key === "string") void navigate(links.run(point.key));
        }}
      />
      <Points frontier={frontier} />
      <p className="note">
        95 % intervals, bootstrap over sequences; differences are paired by sequence and not corrected for the number of
        K. Runs that were trained at a small K usually lose less at it than hollow points. Compare losses with care
        where the routing shares differ: a dense path that works without routing lowers the loss.
      </p>
      {run.has_top_k && (
        <>
          <p className="note">To evaluate {run.name} with fewer active experts on the same text, run:</p>
          <Command text={`mxd evaluate ${run.name} --k ${fewer} --dataset ${sample}`} />
        </>
      )}
    </section>
  );
}
