/** Activation densities and dead experts of a run, from its index. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { figureQuery, reportQuery } from "@/api/queries";
import type { FigureName, RunSummary } from "@/api/types";
import { Plot, type PlotProps } from "@/components/plots/plot";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { Command } from "@/components/ui/copy-button";
import { PaneHead } from "@/components/ui/pane-head";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";
import { Title } from "@/pages/evaluate/dots";

/** The verdict's metrics of one run, with a link to the comparison. */
export function Faithfulness({ run: { name: run, held_out: found } }: { readonly run: RunSummary }) {
  const { data, error, refetch } = useQuery(reportQuery(run));
  const sections = data?.chapters.flatMap((chapter) => chapter.sections) ?? [];
  const [verdict, metrics] = ["verdict", "metrics"].map((name) => sections.find(({ key }) => key === name));
  const table = metrics?.tables[0];
  // The run is first if it was evaluated.
  const isEvaluated = table?.columns[0]?.key === run;
  return (
    <section className="pane">
      <PaneHead title="Faithfulness">
        {table !== undefined && table.columns.length > 1 && (
          <Link className="link" to={pageLinks(run).page("evaluate")}>
            Beside the other runs
          </Link>
        )}
      </PaneHead>
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && (
        <LoadingState label="Loading evaluation" rows={found === null ? 2 : 9} rowHeight={48} />
      )}
      {data !== undefined && !isEvaluated && (
        <>
          <p className="ink2">To measure how much worse the language model predicts text with this layer, run:</p>
          {verdict?.commands.map((command) => (
            <Command key={command} text={command} />
          ))}
        </>
      )}
      {isEvaluated && verdict !== undefined && (
        <>
          <p className="verdict">{verdict.verdict}</p>
          <dl className="main-results">
            {table.rows.map((row) => {
              const [own] = row.cells;
              // The health below has the last one.
              if (!own || row.key === "dead_in_index") return null;
              return (
                <div key={row.key} className={row === table.rows[0] ? "lead" : undefined}>
                  <dt>
                    <Title head={row} />
                  </dt>
                  <dd className="value">{own.text}</dd>
                  <dd className="dim">{own.interval}</dd>
                </div>
              );
            })}
          </dl>
          {/* The sample. Other notes may be on other runs' values. */}
          <p className="ink2">{metrics?.notes[0]}</p>
          {[...new Set(table.rows.map(({ cells: [own] }) => own?.footnote))].map((text) => (
            <p key={text} className="ink2">
              {text}
            </p>
          ))}
        </>
      )}
    </section>
  );
}

const HEIGHT = 350;

function HealthFigures({ run }: { readonly run: RunSummary }) {
  const metric = run.last_metric;
  const dead = run.active_experts === null ? null : run.num_experts - run.active_experts;
  return (
    <div className="health-figures big-figures">
      {dead !== null && (
        <div>
          <b>{formatPercent(dead / run.num_experts, 1)} %</b>
          <span>
            <Term id="dead_share">dead</Term>: {formatCount(dead)} of {formatCount(run.num_experts)} are active on none
            of {formatCount(run.indexed_tokens ?? 0)} indexed tokens
          </span>
        </div>
      )}
      {metric !== null && (
        <>
          <div>
            <b>{formatFixed(metric.l0, 1)}</b>
            <span>
              <Term id="l0">active per token</Term>, mean of the last training tokens
            </span>
          </div>
          <div>
            <b>{formatPercent(metric.max_density, 1)} %</b>
            <span>
              highest <Term id="density">density</Term>, on the last training tokens
            </span>
          </div>
        </>
      )}
    </div>
  );
}

interface RunFigureProps extends Pick<PlotProps, "height"> {
  readonly run: string;
  readonly name: FigureName;
}

/** A figure of the server about one run. */
export function RunFigure({ run, name, height }: RunFigureProps) {
  const { data, error, refetch } = useQuery(figureQuery(name, { run }));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading figure" rows={6} rowHeight={32} />;
  return <Plot figure={data} height={height} label={data.title} />;
}

export function Health({ run }: { readonly run: RunSummary }) {
  const isIndexed = run.indexed_tokens !== null;
  return (
    <section className="pane run-part">
      <PaneHead title="Expert health">
        {run.held_out !== null && (
          <Link className="link" to={pageLinks(run.name).page("evaluate")}>
            All metrics
          </Link>
        )}
      </PaneHead>
      <HealthFigures run={run} />
      {isIndexed ? (
        <RunFigure run={run.name} name="density-histogram" height={HEIGHT} />
      ) : (
        <>
          <p className="ink2">To measure how often each expert fires, run:</p>
          <Command text={run.index_command} />
        </>
      )}
    </section>
  );
}
