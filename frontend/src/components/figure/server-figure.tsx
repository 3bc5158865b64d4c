/** A figure of the server in a pane of its own, or the command that makes it. */

import { useQuery } from "@tanstack/react-query";

import { figureQuery } from "@/api/queries";
import type { FigureData, FigureName } from "@/api/types";

import { Command } from "../command";
import { useIsNarrow } from "../media";
import { EmptyState, ErrorState, LoadingState } from "../states";
import { FigureView } from "./figure-view";

interface ServerFigureProps {
  readonly name: FigureName;
  readonly run?: string;
  /** What to run where there is nothing to draw yet; without it nothing is said. */
  readonly command?: string;
  /** In pixels, or what it follows from. */
  readonly height?: number | ((figure: FigureData) => number);
  readonly prepare?: (figure: FigureData) => FigureData;
}

const same = (figure: FigureData) => figure;

export function ServerFigure({ name, run, command, height = 380, prepare = same }: ServerFigureProps) {
  const isNarrow = useIsNarrow();
  const { data, error, refetch } = useQuery(figureQuery(name, run === undefined ? {} : { run }));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the figure" rows={8} rowHeight={32} />;
  if (data.total === 0)
    return command === undefined ? null : (
      <EmptyState title="Nothing measured yet">
        {data.title}
        <Command text={command} />
      </EmptyState>
    );
  const wanted = typeof height === "number" ? (isNarrow ? 300 : height) : height(data);
  return (
    <section className="pane settings">
      <FigureView figure={prepare(data)} height={wanted} />
    </section>
  );
}
