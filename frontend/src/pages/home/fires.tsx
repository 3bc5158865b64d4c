/** The expert: its figures, and the contexts in which it is strongest. */

import type { Context, ExpertDetail, ExpertRow } from "@/api/types";
import { Button, LinkButton } from "@/components/button";
import { ExpertLabel } from "@/components/expert-ref";
import { usePageLinks } from "@/components/links";
import { MiniHistogram } from "@/components/mini-histogram";
import { useShortcut } from "@/components/shortcuts";
import { LoadingState } from "@/components/states";
import { Concordance } from "@/components/tokens/concordance";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { useTray } from "@/components/tray/tray-context";
import { formatFixed, formatPercent } from "@/lib/format";

import { HOME_CONTEXTS } from "./home-prompts";

function Actions({ expert, onAnother }: { readonly expert: number; readonly onAnother: () => void }) {
  const links = usePageLinks();
  const tray = useTray();
  const inTray = tray.has(expert);
  useShortcut("tray", () => tray.toggle(expert));
  return (
    <div className="acts">
      <LinkButton size="small" to={links.expert(expert)}>
        Open
      </LinkButton>
      <Button size="small" icon="dice" onClick={onAnother}>
        Another
      </Button>
      <Button
        size="small"
        variant={inTray ? "chosen" : "plain"}
        icon={inTray ? "check" : "plus"}
        aria-pressed={inTray}
        onClick={() => tray.toggle(expert)}
      >
        {inTray ? "In tray" : "To tray"}
      </Button>
    </div>
  );
}

function Side({ row, onAnother }: { readonly row: ExpertRow; readonly onAnother: () => void }) {
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
          <dt>Usage</dt>
          <dd>
            {formatPercent(row.usage)} <span>%</span>
          </dd>
        </div>
        <div>
          <dt>Largest coefficient</dt>
          <dd>{formatFixed(row.largest)}</dd>
        </div>
        <div>
          <dt>Token entropy</dt>
          <dd>
            {formatFixed(row.entropy, 1)} <span>bits</span>
          </dd>
        </div>
      </dl>
      <MiniHistogram counts={row.histogram} high={row.histogram_high} height={46} caption="coefficient, log count" />
      <Actions expert={row.expert} onAnother={onAnother} />
    </div>
  );
}

interface FiresProps {
  readonly detail: ExpertDetail;
  readonly contexts: readonly Context[];
  readonly onAnother: () => void;
}

export function Fires({ detail, contexts, onAnother }: FiresProps) {
  const { row, intervals } = detail;
  const stored = intervals[0]?.contexts ?? contexts.length;
  return (
    <section className="band">
      <Side row={row} onAnother={onAnother} />
      <div className="pane">
        <div className="pane-h">
          <h2>It fires here</h2>
          <span className="note">
            {contexts.length} of {stored} contexts, each centred on the token where the expert is strongest
          </span>
          <span className="grow" />
          <RampLegend kind="sequential" low="Coefficient 0" high={formatFixed(row.largest)} />
        </div>
        {contexts.length === 0 ? (
          <LoadingState label="Loading contexts" rows={HOME_CONTEXTS} rowHeight={28} />
        ) : (
          <Concordance contexts={contexts} largest={row.largest} mode="aligned" />
        )}
      </div>
    </section>
  );
}
