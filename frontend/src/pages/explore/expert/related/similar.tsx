/** The most similar experts by gate, output, tokens or co-activation. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { similarQuery } from "@/api/queries";
import type { SimilarBy, SimilarExpert } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { PlusButton } from "@/components/tray/plus-button";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatFixed } from "@/lib/text/format";

interface SimilarProps {
  readonly run: string;
  readonly expert: number;
  readonly by: SimilarBy;
  readonly onBy: (by: SimilarBy) => void;
}

function SimilarRow({ similar }: { readonly similar: SimilarExpert }) {
  const links = usePageLinks();
  const tokens = similar.top_tokens.map((token) => token.text);
  return (
    <tr>
      <td className="id mono">{similar.expert}</td>
      <td className="lab">
        <Link to={links.expert(similar.expert)}>
          <ExpertLabel label={similar.label} automatic={similar.automatic} topTokens={tokens} />
          {similar.label === null && <span className="sr">Expert {similar.expert}</span>}
        </Link>
      </td>
      <td className="bar-cell">
        <i style={{ width: `${Math.max(0, 100 * similar.similarity)}%` }} />
      </td>
      <td className="num">{formatFixed(similar.similarity)}</td>
      <td>
        <PlusButton expert={similar.expert} />
      </td>
    </tr>
  );
}

export function Similar({ run, expert, by, onBy }: SimilarProps) {
  const { data, error, isPending } = useQuery(similarQuery(run, expert, by));
  return (
    <section className="pane">
      <div className="pane-h">
        <h2>
          <Term id="similar">Similar experts</Term>
        </h2>
        <span className="note">by</span>
        <SegmentedControl
          label="Similar by"
          value={by}
          onChange={onBy}
          segments={[
            { value: "gate", label: "gate" },
            { value: "output", label: "output" },
            { value: "tokens", label: "tokens" },
            { value: "coactivation", label: "co-activation" },
          ]}
        />
      </div>
      {data?.active_tokens != null && (
        <p className="ablation-note">
          Counted on {formatCount(data.active_tokens)} {data.active_tokens === 1 ? "token" : "tokens"} of a sample on
          which it is active{!data.enough_tokens && ": too few to rely on"}.
        </p>
      )}
      {data?.p95 != null && (
        <p className="ablation-note">95th percentile over all other experts: {formatFixed(data.p95)}.</p>
      )}
      {error !== null && <ErrorState error={error} />}
      {isPending && <LoadingState label="Loading similar experts" rows={5} />}
      {data !== undefined && (
        <table className="similar">
          <tbody>
            {data.experts.map((similar) => (
              <SimilarRow key={similar.expert} similar={similar} />
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
