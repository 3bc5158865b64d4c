/** Main faithfulness results of a run, with a link to all metrics. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { evaluationsQuery } from "@/api/queries";
import { Findings } from "@/components/runs/evaluations/findings";
import { evaluateCommand } from "@/components/runs/latest-evaluation";
import { pageLinks } from "@/components/runs/page-links";
import { shortSource } from "@/components/runs/run-labels";
import { Command } from "@/components/ui/copyable-command";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount } from "@/lib/text/format";

export function Faithfulness({ run }: { readonly run: string }) {
  const { data, error, refetch } = useQuery(evaluationsQuery(run));
  const newest = data?.evaluations[0];
  return (
    <section className="pane settings">
      <div className="pane-h">
        <h2>Faithfulness</h2>
        {newest !== undefined && (
          <span className="note">
            {formatCount(newest.tokens)} tokens in {formatCount(newest.sequences)} sequences of{" "}
            {shortSource(newest.text)}
            {newest.seen_text ? ", which it was trained on" : ""}
          </span>
        )}
        <span className="grow" />
        <Link className="link" to={pageLinks(run).page("faithfulness")}>
          All metrics
        </Link>
      </div>
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <LoadingState label="Loading evaluation" rows={2} rowHeight={20} />}
      {data !== undefined && newest === undefined && (
        <>
          <p className="ink2">To measure how much worse the language model predicts text with this layer, run:</p>
          <Command text={evaluateCommand(run)} />
        </>
      )}
      {newest !== undefined && <Findings run={run} facts={newest.faithfulness} />}
    </section>
  );
}
