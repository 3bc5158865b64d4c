/** Experts that fire on the same token as this one, on the token before or on the token after. */

import "./coactivation.css";

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { coactivationQuery } from "@/api/queries";
import type { CoactivatingExperts, Companion } from "@/api/types";
import { ExpertLink } from "@/components/experts/expert-link";
import { Term } from "@/components/terms/term";
import { PlusButton } from "@/components/tray/plus-button";
import { Button } from "@/components/ui/button";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCompact, formatCount, formatPercent } from "@/lib/text/format";

/** Experts per list before all are shown. */
const PREVIEW = 3;

interface CompanionListProps {
  readonly title: string;
  readonly expert: number;
  readonly companions: readonly Companion[];
}

function formatLift(times: number): string {
  return `×${times >= 10 ? formatCount(Math.round(times)) : times.toFixed(1)}`;
}

/** Counts; with enough events, also the share with its interval and how often the usual rate it is. */
function CompanionCounts({ tokens, of_tokens: of, share, share_interval: interval, lift }: Companion) {
  return (
    <span className="counts num">
      <span>
        {share !== null && `${formatPercent(share, 0)} % `}
        {lift !== null && <span className="dim">{formatLift(lift)}</span>}
      </span>
      <span className="dim">
        {formatCompact(tokens)} of {formatCompact(of)}
        {interval !== null && `, ${formatPercent(interval[0], 0)} to ${formatPercent(interval[1], 0)} %`}
      </span>
    </span>
  );
}

function CompanionList({ title, expert, companions }: CompanionListProps) {
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      {companions.length === 0 ? (
        <p className="dim">none</p>
      ) : (
        <ol>
          {companions.map((companion) => (
            <li key={companion.expert}>
              {companion.expert === expert ? (
                <span className="dim">the expert itself</span>
              ) : (
                <>
                  <ExpertLink
                    expert={companion.expert}
                    label={companion.label}
                    automatic={companion.automatic}
                    topTokens={companion.top_tokens.map((token) => token.text)}
                    withPlus={false}
                  />
                  <PlusButton expert={companion.expert} />
                </>
              )}
              <CompanionCounts {...companion} />
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

/** What the counts are worth. */
function Explanation({ data }: { readonly data: CoactivatingExperts }) {
  const active = formatCount(data.active_tokens);
  const sampled = formatCount(data.sampled_tokens);
  if (data.sampled_tokens === 0) return "The index has no token sample to count in. Index the run again.";
  if (data.active_tokens === 0) return `It is inactive on the ${sampled} sampled tokens.`;
  return data.enough_tokens
    ? `Counted on its ${active} active tokens in a sample of ${sampled}. Listed: experts that fire there more often than elsewhere, at least twice, by Jaccard index. Intervals (95 %, Wilson) treat tokens as independent, so they are too narrow.`
    : `It is active on only ${active} of the ${sampled} sampled tokens: too few for percentages. The counts may be chance.`;
}

function Companions({ expert, data }: { readonly expert: number; readonly data: CoactivatingExperts }) {
  const [isAll, setAll] = useState(false);
  const lists = [
    ["Token before", data.before],
    ["Same token", data.same_token],
    ["Token after", data.after],
  ] as const;
  const longest = Math.max(...lists.map(([, companions]) => companions.length));
  if (longest === 0) return null;
  return (
    <>
      <div className={data.enough_tokens ? "coactivation-lists" : "coactivation-lists few"}>
        {lists.map(([title, companions]) => (
          <CompanionList
            key={title}
            title={title}
            expert={expert}
            companions={isAll ? companions : companions.slice(0, PREVIEW)}
          />
        ))}
      </div>
      {longest > PREVIEW && (
        <Button className="show-all" size="small" variant="ghost" aria-expanded={isAll} onClick={() => setAll(!isAll)}>
          {isAll ? `Show ${PREVIEW} of each` : `Show up to ${longest} of each`}
        </Button>
      )}
    </>
  );
}

export function Coactivation({ run, expert }: { readonly run: string; readonly expert: number }) {
  const { data, error, isPending } = useQuery(coactivationQuery(run, expert));
  if (isPending) return <LoadingState label="Loading co-activating experts" rows={6} />;
  if (error !== null) return <ErrorState error={error} />;
  return (
    <section className="pane coactivation">
      <div className="pane-h">
        <h2>
          <Term id="coactivation">Co-activating experts</Term>
        </h2>
      </div>
      <p className="ablation-note">
        <Explanation data={data} />
      </p>
      <Companions expert={expert} data={data} />
    </section>
  );
}
