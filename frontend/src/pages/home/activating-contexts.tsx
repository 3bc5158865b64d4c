/** An expert's statistics and top examples. */

import { useQuery } from "@tanstack/react-query";

import { runQuery } from "@/api/queries";
import type { Context, ExpertDetail, ExpertRow, RunSummary } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { MiniHistogram } from "@/components/plots/mini-histogram";
import { usePageLinks } from "@/components/runs/page-links";
import { shortSource } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { Concordance } from "@/components/tokens/concordance";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { useTray } from "@/components/tray/tray-context";
import { Button, LinkButton } from "@/components/ui/button";
import { LoadingState } from "@/components/ui/states";
import { useShortcut } from "@/hooks/use-shortcut";
import { formatCount, formatFixed, formatShare } from "@/lib/text/format";

import { HOME_CONTEXTS } from "./home-prompts";

function Actions({ expert, onNext }: { readonly expert: number; readonly onNext: () => void }) {
  const links = usePageLinks();
  const tray = useTray();
  const inTray = tray.has(expert);
  useShortcut("tray", () => tray.toggle(expert));
  return (
    <div className="acts">
      <LinkButton size="small" to={links.expert(expert)}>
        Open
      </LinkButton>
      <Button size="small" icon="dice" aria-label="Next expert" onClick={onNext}>
        Next
      </Button>
      <Button
        size="small"
        variant={inTray ? "chosen" : "plain"}
        icon={inTray ? "check" : "plus"}
        aria-pressed={inTray}
        onClick={() => tray.toggle(expert)}
      >
        {inTray ? "In tray" : "Add to tray"}
      </Button>
    </div>
  );
}

interface ExpertSummaryProps {
  readonly run: RunSummary;
  readonly row: ExpertRow;
  readonly onNext: () => void;
}

/** The text that the statistics and examples are from. One line at all times, so that nothing moves when it arrives. */
function IndexedText({ run }: { readonly run: RunSummary }) {
  const { data } = useQuery(runQuery(run.name));
  const text = data?.index_text;
  return (
    <p className="indexed-text" title={text ?? undefined}>
      On {formatCount(run.indexed_tokens ?? 0)} tokens of {text == null ? "text" : shortSource(text)}
    </p>
  );
}

function ExpertSummary({ run, row, onNext }: ExpertSummaryProps) {
  return (
    <div className="side">
      <h2 className="big">1. What it fires on</h2>
      <p className="named">
        <span className="mono">{row.expert}</span>{" "}
        <ExpertLabel
          label={row.label}
          automatic={row.automatic}
          topTokens={row.top_tokens.map((token) => token.text)}
        />
      </p>
      <dl className="kv">
        <div>
          <dt>
            <Term id="density">Density</Term>
          </dt>
          <dd>
            {formatShare(row.density)} <span>%</span>
          </dd>
        </div>
        <div>
          <dt>
            <Term id="max_activation">Max activation</Term>
          </dt>
          <dd>{formatFixed(row.max_activation)}</dd>
        </div>
        <div>
          <dt>
            <Term id="entropy">Token entropy</Term>
          </dt>
          <dd>
            {formatFixed(row.entropy, 1)} <span>bits</span>
          </dd>
        </div>
      </dl>
      <IndexedText run={run} />
      <MiniHistogram
        counts={row.histogram}
        high={row.histogram_high}
        end={row.max_activation}
        height={46}
        caption="activation, log count"
      />
      <Actions expert={row.expert} onNext={onNext} />
    </div>
  );
}

interface ActivatingContextsProps {
  readonly run: RunSummary;
  readonly detail: ExpertDetail;
  readonly contexts: readonly Context[];
  readonly onNext: () => void;
}

export function ActivatingContexts({ run, detail, contexts, onNext }: ActivatingContextsProps) {
  const { row } = detail;
  return (
    <section className="band">
      <ExpertSummary run={run} row={row} onNext={onNext} />
      <div className="pane">
        <div className="pane-h">
          <h2>Top examples</h2>
          <span className="note">
            the {contexts.length} strongest, at most one per sequence; outlined: their peaks; ‖ separates documents
          </span>
          <span className="grow" />
          <RampLegend kind="sequential" low="Activation 0" high={formatFixed(row.max_activation)} />
        </div>
        {contexts.length === 0 ? (
          <LoadingState label="Loading examples" rows={HOME_CONTEXTS} rowHeight={28} />
        ) : (
          <Concordance contexts={contexts} largest={row.max_activation} mode="aligned" />
        )}
      </div>
    </section>
  );
}
