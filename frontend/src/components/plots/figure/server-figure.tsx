/** A server-side figure in its own pane, or the command that measures its data. */

import { useQuery } from "@tanstack/react-query";

import { figureQuery } from "@/api/queries";
import type { FigureData, FigureName } from "@/api/types";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useIsNarrow } from "@/hooks/use-is-narrow";

import { FigureView } from "./figure-view";

interface ServerFigureProps {
  readonly name: FigureName;
  readonly run?: string;
  /** Shown if there is no data yet; without it, nothing is rendered. */
  readonly command?: string;
  /** In pixels, or a function of the figure. */
  readonly height?: number | ((figure: FigureData) => number);
  /** The sample, or how to read the figure. */
  readonly note?: string;
  readonly prepare?: (figure: FigureData) => FigureData;
}

const unchanged = (figure: FigureData) => figure;

export function ServerFigure({ name, run, command, height = 380, note, prepare = unchanged }: ServerFigureProps) {
  const isNarrow = useIsNarrow();
  const { data, error, refetch } = useQuery(figureQuery(name, run === undefined ? {} : { run }));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading figure" rows={8} rowHeight={32} />;
  if (data.total === 0)
    return command === undefined ? null : (
      <EmptyState title="Not measured yet. Run:">
        {data.title}
        <Command text={command} />
      </EmptyState>
    );
  const plotHeight = typeof height === "number" ? (isNarrow ? 300 : height) : height(data);
  return (
    <section className="pane settings">
      <FigureView figure={prepare(data)} note={note} height={plotHeight} />
    </section>
  );
}
