/** The verdict's metrics of one run, with a link to the comparison. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { evaluationsQuery } from "@/api/queries";
import { evaluateCommand } from "@/components/runs/latest-evaluation";
import { pageLinks } from "@/components/runs/page-links";
import { formatVerdict } from "@/components/runs/run-labels";
import { Command } from "@/components/ui/copyable-command";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount } from "@/lib/text/format";

export function Faithfulness({ run }: { readonly run: string }) {
  const { data: report, error, refetch } = useQuery(evaluationsQuery(run));
  const data = report?.verdict;
  const own = data?.runs.find(({ name }) => name === run);
  return (
    <section className="pane settings">
      <div className="pane-h">
        <h2>Faithfulness</h2>
        {own !== undefined && (
          <span className="note">
            {formatCount(own.evaluated_tokens)} tokens{own.seen_text ? " that it was trained on" : ""}, 95 % intervals
          </span>
        )}
        <span className="grow" />
        <Link className="link" to={pageLinks(run).page("evaluate")}>
          Beside the other runs
        </Link>
      </div>
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <LoadingState label="Loading evaluation" rows={2} rowHeight={20} />}
      {data !== undefined && own === undefined && (
        <>
          <p className="ink2">To measure how much worse the language model predicts text with this layer, run:</p>
          <Command text={evaluateCommand(run)} />
        </>
      )}
      {own !== undefined && (
        <>
          <p className="verdict">{data?.sentence}</p>
          <dl className="main-results">
            {data?.metrics.map(({ key, title, unit, description }) => {
              const cell = own.cells.find((one) => one.key === key);
              if (cell === undefined) return null;
              const { value, low, high } = cell;
              return (
                <div key={key}>
                  <dt>{title}</dt>
                  <dd className="value">{formatVerdict(value, unit)}</dd>
                  {low !== null && high !== null && (
                    <dd className="dim">
                      {formatVerdict(low, unit)} to {formatVerdict(high, unit)}
                    </dd>
                  )}
                  <dd className="ink2">{description}</dd>
                </div>
              );
            })}
          </dl>
        </>
      )}
    </section>
  );
}
