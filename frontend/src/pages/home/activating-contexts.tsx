/** An expert's statistics and top examples. */

import type { Context, ExpertDetail, ExpertRow } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { MiniHistogram } from "@/components/plots/mini-histogram";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { Concordance } from "@/components/tokens/concordance";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { useTray } from "@/components/tray/tray-context";
import { Button, LinkButton } from "@/components/ui/button";
import { LoadingState } from "@/components/ui/states";
import { useShortcut } from "@/hooks/use-shortcut";
import { formatFixed, formatPercent } from "@/lib/text/format";

import { SHOWN_CONTEXTS } from "./home-prompts";

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
      <Button size="small" icon="dice" onClick={onNext}>
        Next expert
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

function ExpertSummary({ row, onNext }: { readonly row: ExpertRow; readonly onNext: () => void }) {
  return (
    <div className="side">
      <p className="eid mono">{row.expert}</p>
      <h2 className="big">
        <ExpertLabel
          label={row.label}
          automatic={row.automatic}
          topTokens={row.top_tokens.map((token) => token.text)}
        />
      </h2>
      <dl className="kv">
        <div>
          <dt>
            <Term id="density">Density</Term>
          </dt>
          <dd>
            {formatPercent(row.density)} <span>%</span>
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
      <MiniHistogram counts={row.histogram} high={row.histogram_high} height={46} caption="activation, log count" />
      <Actions expert={row.expert} onNext={onNext} />
    </div>
  );
}

interface ActivatingContextsProps {
  readonly detail: ExpertDetail;
  readonly contexts: readonly Context[];
  readonly onNext: () => void;
}

export function ActivatingContexts({ detail, contexts, onNext }: ActivatingContextsProps) {
  const { row, bins: bins } = detail;
  const numStored = bins[0]?.examples ?? contexts.length;
  const shown = contexts.slice(0, SHOWN_CONTEXTS);
  return (
    <section className="band">
      <ExpertSummary row={row} onNext={onNext} />
      <div className="pane">
        <div className="pane-h">
          <h2>Top examples</h2>
          <span className="note">
            {shown.length} of {numStored} examples, aligned on the token with the strongest activation
          </span>
          <span className="grow" />
          <RampLegend kind="sequential" low="Activation 0" high={formatFixed(row.max_activation)} />
        </div>
        {contexts.length === 0 ? (
          <LoadingState label="Loading examples" rows={SHOWN_CONTEXTS} rowHeight={28} />
        ) : (
          <Concordance contexts={shown} largest={row.max_activation} mode="aligned" />
        )}
      </div>
    </section>
  );
}
