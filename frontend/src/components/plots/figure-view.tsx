import type { Layout, PlotlyDataLayoutConfig } from "plotly.js";
import { type ReactNode, useState } from "react";

import type { FigureData } from "@/api/types";
import { ActionMenu } from "@/components/ui/action-menu";
import { Icon } from "@/components/ui/icon";
import { PaneHead } from "@/components/ui/pane-head";
import { saveFile } from "@/lib/browser/save-file";
import { formatCount } from "@/lib/text/format";

import { escapeMarkup, type FigureTable, figureTable, toCsv } from "./figure";
import { loadPlotly, Plot, type PlotProps } from "./plot";
import { readPalette } from "./plot-theme";

/** A figure of the server or of this client. */
export interface ViewedFigure extends Pick<FigureData, "title" | "data" | "layout"> {
  /** Name of downloaded files. */
  readonly name: string;
}

interface FigureViewProps extends Omit<PlotProps, "figure" | "label" | "onReady"> {
  readonly figure: ViewedFigure;
  readonly title?: ReactNode;
  readonly note?: ReactNode;
  /** Additional controls, before the menu of the table and the files. */
  readonly controls?: ReactNode;
}

/** An image has no web fonts, so its text is measured and drawn in the font that every system has. */
const IMAGE_FONT = "sans-serif";

const TITLE_HEIGHT = 28;

/** The drawn layout with the figure's title above it, on the theme's background instead of a transparent one. */
function imageLayout(layout: Partial<Layout> | undefined, title: string): Partial<Layout> {
  const margin = { ...layout?.margin, t: (layout?.margin?.t ?? 0) + TITLE_HEIGHT };
  const font = { ...layout?.font, family: IMAGE_FONT };
  const text = `<b>${String(escapeMarkup(title))}</b>`;
  const place = { x: 0, xref: "paper", xanchor: "left", y: 1, yref: "container", yanchor: "top" } as const;
  const { surface: paper_bgcolor } = readPalette();
  return {
    ...layout,
    paper_bgcolor,
    font,
    margin,
    title: { ...place, text, font: { ...font, size: 13 }, pad: { t: 8 } },
  };
}

/** Pixels of an image per pixel on screen: enough for print at the width of a column. */
const PNG_SCALE = 3;

async function saveImage(element: HTMLDivElement, { name, title }: ViewedFigure, format: "png" | "svg"): Promise<void> {
  const plotly = await loadPlotly();
  const { width, height } = element.getBoundingClientRect();
  // Plotly keeps the drawn figure in fields of the element.
  const { data, layout } = element as HTMLDivElement & PlotlyDataLayoutConfig;
  const image = { data, layout: imageLayout(layout, title) };
  const size = { width, height: height + TITLE_HEIGHT, scale: format === "png" ? PNG_SCALE : 1 };
  await plotly.downloadImage(image, { format, filename: name, ...size });
}

const FORMATS = {
  csv: "Download data, CSV",
  json: "Download Plotly figure, JSON",
  svg: "Download image, SVG",
  png: "Download image, PNG",
} as const;

const MAX_TABLE_ROWS = 200;

function TableView({ table, height }: { readonly table: FigureTable; readonly height: number }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="figure-table" style={{ height }} tabIndex={0} role="region" aria-label="Figure as table">
      <table className="grid plain">
        <thead>
          <tr>
            {table.columns.map((column) => (
              <th key={column}>{column}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.slice(0, MAX_TABLE_ROWS).map((row, i) => (
            <tr key={i}>
              {row.map((value, column) => (
                <td key={column}>{value}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {table.rows.length > MAX_TABLE_ROWS && (
        <p className="dim">
          First {MAX_TABLE_ROWS} of {formatCount(table.rows.length)} rows; download for all rows.
        </p>
      )}
    </div>
  );
}

export function FigureView({ figure, title = figure.title, note, controls, ...plot }: FigureViewProps) {
  const [asTable, setAsTable] = useState(false);
  const [element, setElement] = useState<HTMLDivElement | null>(null);
  const act = (action: "table" | keyof typeof FORMATS) => {
    if (action === "table") setAsTable(!asTable);
    else if (action === "csv") saveFile(`${figure.name}.csv`, toCsv(figureTable(figure)), "text/csv");
    else if (action === "json") saveFile(`${figure.name}.json`, JSON.stringify(figure), "application/json");
    else if (element !== null) void saveImage(element, figure, action);
  };
  return (
    <>
      <PaneHead title={title} note={note}>
        {controls}
        <ActionMenu
          label="Table and files"
          actions={{ table: asTable ? "Show as figure" : "Show as table", ...FORMATS }}
          onAction={act}
        >
          <Icon name="more" />
        </ActionMenu>
      </PaneHead>
      {asTable ? (
        <TableView table={figureTable(figure)} height={plot.height} />
      ) : (
        <Plot figure={figure} label={figure.title} onReady={setElement} {...plot} />
      )}
    </>
  );
}
