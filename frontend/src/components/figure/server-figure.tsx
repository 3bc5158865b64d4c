/** A figure of the server in a pane of its own, or the command that makes it. */

import { useQuery } from "@tanstack/react-query";

import { ApiError } from "@/api/errors";
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
  readonly height?: number;
  readonly prepare?: (figure: FigureData) => FigureData;
}

const same = (figure: FigureData) => figure;

export function ServerFigure({ name, run, command, height = 380, prepare = same }: ServerFigureProps) {
  const isNarrow = useIsNarrow();
  const { data, error, refetch } = useQuery(figureQuery(name, run === undefined ? {} : { run }));
  const isEmpty = error instanceof ApiError && error.code === "no-evaluations";
  if (isEmpty && command === undefined) return null;
  if (isEmpty)
    return (
      <EmptyState title="Nothing measured yet">
        {error.message}
        {command !== undefined && <Command text={command} />}
      </EmptyState>
    );
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the figure" rows={8} rowHeight={32} />;
  return (
    <section className="pane settings">
      <FigureView figure={prepare(data)} height={isNarrow ? 300 : height} />
    </section>
  );
}
