/** What fires on the token before this expert's, with it, and on the token after. */

import "./together.css";

import { useQuery } from "@tanstack/react-query";

import { togetherQuery } from "@/api/queries";
import type { Companion } from "@/api/types";
import { ExpertRef } from "@/components/expert-ref";
import { ErrorState, LoadingState } from "@/components/states";
import { formatCount, formatPercent } from "@/lib/format";

interface ListProps {
  readonly title: string;
  readonly companions: readonly Companion[];
}

function lift(times: number): string {
  return `×${times >= 10 ? Math.round(times) : times.toFixed(1)}`;
}

function CompanionList({ title, companions }: ListProps) {
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      {companions.length === 0 ? (
        <p className="dim">none more than once</p>
      ) : (
        <ol>
          {companions.map((one) => (
            <li
              key={one.expert}
              title={`On ${formatCount(one.tokens)} tokens, ${lift(one.lift)} as often as on any token`}
            >
              <ExpertRef
                expert={one.expert}
                label={one.label}
                automatic={one.automatic}
                topTokens={one.top_tokens.map((token) => token.text)}
              />
              <span className="num">{formatPercent(one.share, 0)} %</span>
              <span className="num dim">{lift(one.lift)}</span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

export function Together({ run, expert }: { readonly run: string; readonly expert: number }) {
  const { data, error, isPending } = useQuery(togetherQuery(run, expert));
  if (isPending) return <LoadingState label="Loading what fires together" rows={6} />;
  if (error !== null) return <ErrorState error={error} />;
  return (
    <section className="pane together">
      <div className="pane-h">
        <h2>Fires around it</h2>
        <span className="note">
          {data.sampled_tokens === 0
            ? "this index keeps no sample to count in; index the run again"
            : `share of its ${formatCount(data.active_tokens)} tokens in a sample of ${formatCount(data.sampled_tokens)}`}
        </span>
      </div>
      {data.active_tokens > 0 && (
        <div className="together-lists">
          <CompanionList title="Just before" companions={data.before} />
          <CompanionList title="With it" companions={data.together} />
          <CompanionList title="Just after" companions={data.after} />
        </div>
      )}
    </section>
  );
}
