/** A Plotly figure. Plotly is a separate chunk, loaded with the first figure. */

import type { Config, PlotlyHTMLElement, PlotMouseEvent, PlotSelectionEvent } from "plotly.js";
import { useEffect, useMemo, useRef, useState } from "react";

import type { FigureData } from "@/api/types";
import { LoadingState } from "@/components/ui/states";

import { themeFigure, usePalette } from "./plot-theme";

type PlotlyModule = typeof import("plotly.js-cartesian-dist-min").default;

export interface PlotPoint {
  readonly x: number;
  readonly y: number;
  /** The point's `customdata`: the expert's id in scatter plots of experts. */
  readonly key: unknown;
}

export interface PlotProps {
  readonly figure: Pick<FigureData, "data" | "layout">;
  readonly height: number;
  readonly label: string;
  readonly dragMode?: "pan" | "lasso" | "select" | "zoom" | false;
  readonly onSelect?: (points: readonly PlotPoint[]) => void;
  readonly onClick?: (point: PlotPoint) => void;
  /** Receives the plot element, for downloads. */
  readonly onReady?: (element: HTMLDivElement) => void;
}

const CONFIG: Partial<Config> = {
  displayModeBar: false,
  responsive: false,
  scrollZoom: false,
  doubleClick: "reset+autosize",
};

export async function loadPlotly(): Promise<PlotlyModule> {
  return (await import("plotly.js-cartesian-dist-min")).default;
}

function usePlotly(): PlotlyModule | null {
  const [plotly, setPlotly] = useState<PlotlyModule | null>(null);
  useEffect(() => void loadPlotly().then((loaded) => setPlotly(() => loaded)), []);
  return plotly;
}

const pointOf = (point: { x?: unknown; y?: unknown; customdata?: unknown }): PlotPoint => ({
  x: Number(point.x),
  y: Number(point.y),
  key: point.customdata,
});

type Listeners = Pick<PlotProps, "onSelect" | "onClick">;

function listen(element: PlotlyHTMLElement, listeners: { readonly current: Listeners }): void {
  element.on("plotly_selected", (event: PlotSelectionEvent | undefined) => {
    listeners.current.onSelect?.((event?.points ?? []).map(pointOf));
  });
  element.on("plotly_deselect", () => listeners.current.onSelect?.([]));
  element.on("plotly_click", (event: PlotMouseEvent) => {
    const point = event.points[0];
    if (point !== undefined) listeners.current.onClick?.(pointOf(point));
  });
}

function usePlot(props: PlotProps, plotly: PlotlyModule | null) {
  const { figure, height, dragMode = false, onSelect, onClick, onReady } = props;
  const root = useRef<HTMLDivElement>(null);
  const listeners = useRef<Listeners>({});
  const palette = usePalette();
  const themedFigure = useMemo(() => themeFigure(figure, palette), [figure, palette]);
  useEffect(() => {
    listeners.current = { ...(onSelect && { onSelect }), ...(onClick && { onClick }) };
  });
  useEffect(() => {
    const element = root.current;
    if (element === null || plotly === null) return;
    const isFirstRender = !("on" in element);
    const layout = { uirevision: "keep", ...themedFigure.layout, height, dragmode: dragMode, autosize: true };
    void plotly.react(element, themedFigure.data, layout, CONFIG).then((plot) => {
      if (!isFirstRender) return;
      listen(plot, listeners);
      onReady?.(element);
    });
  }, [plotly, themedFigure, height, dragMode, onReady]);
  useEffect(() => {
    const element = root.current;
    if (element === null || plotly === null) return undefined;
    const observer = new ResizeObserver(() => {
      // A hidden or removed element has no width, and Plotly's resize throws without one.
      if ("_fullLayout" in element && element.clientWidth > 0) plotly.Plots.resize(element);
    });
    observer.observe(element);
    // No purge: Plotly draws in several steps, and throws in the next one without the figure's state.
    return () => observer.disconnect();
  }, [plotly]);
  return root;
}

export function Plot(props: PlotProps) {
  const plotly = usePlotly();
  const root = usePlot(props, plotly);
  return (
    <div className="plot" style={{ height: props.height }} role="img" aria-label={props.label}>
      <div ref={root} />
      {plotly === null && <LoadingState label="Loading figure" rows={8} rowHeight={props.height / 8} />}
    </div>
  );
}
