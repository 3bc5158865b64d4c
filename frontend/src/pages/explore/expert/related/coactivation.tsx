/** Experts that fire on the same token as this one, on the token before or on the token after. */

import "./coactivation.css";

import { useQuery } from "@tanstack/react-query";

import { coactivationQuery } from "@/api/queries";
import type { Companion } from "@/api/types";
import { ExpertLink } from "@/components/experts/expert-link";
import { Term } from "@/components/terms/term";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatPercent } from "@/lib/text/format";

interface CompanionListProps {
  readonly title: string;
  readonly companions: readonly Companion[];
}

function formatLift(times: number): string {
  return `×${times >= 10 ? Math.round(times) : times.toFixed(1)}`;
}

function CompanionList({ title, companions }: CompanionListProps) {
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      {companions.length === 0 ? (
        <p className="dim">none more than once</p>
      ) : (
        <ol>
          {companions.map((companion) => (
            <li
              key={companion.expert}
              title={`On ${formatCount(companion.tokens)} tokens, ${formatLift(companion.lift)} the base rate`}
            >
              <ExpertLink
                expert={companion.expert}
                label={companion.label}
                automatic={companion.automatic}
                topTokens={companion.top_tokens.map((token) => token.text)}
              />
              <span className="num">{formatPercent(companion.share, 0)} %</span>
              <span className="num dim">{formatLift(companion.lift)}</span>
            </li>
          ))}
        </ol>
      )}
    </section>
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
        <span className="note">
          {data.sampled_tokens === 0
            ? "the index has no token sample to count in; index the run again"
            : `share of its ${formatCount(data.active_tokens)} activations in a sample of ${formatCount(data.sampled_tokens)} tokens`}
        </span>
      </div>
      {data.active_tokens > 0 && (
        <div className="coactivation-lists">
          <CompanionList title="Token before" companions={data.before} />
          <CompanionList title="Same token" companions={data.same_token} />
          <CompanionList title="Token after" companions={data.after} />
        </div>
      )}
    </section>
  );
}
