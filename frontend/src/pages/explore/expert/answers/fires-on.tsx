/** What the expert fires on: its most frequent tokens, its activations, and how often. */

import { Link } from "react-router";

import type { ExpertRow, RunSummary, TokenCount } from "@/api/types";
import { ActivationHistogram } from "@/components/plots/mini-histogram";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatCompact, formatCount, formatPlural, formatShare } from "@/lib/text/format";

const MAX_TOKENS = 7;
/** With fewer active tokens, shares and examples are anecdotes. The server gives no co-activation shares either. */
const FEW_TOKENS = 20;

function TopTokens({ tokens }: { readonly tokens: readonly TokenCount[] }) {
  const largestShare = tokens[0]?.share ?? 1;
  const links = usePageLinks();
  return (
    <table className="top-tokens">
      <thead>
        <tr>
          <th scope="col" colSpan={2}>
            <Term id="top_tokens">Most often on</Term>
          </th>
          <th scope="col" className="num">
            <span className="sr">Share of active tokens, </span>%
          </th>
        </tr>
      </thead>
      <tbody>
        {tokens.slice(0, MAX_TOKENS).map((token) => (
          <tr key={token.id} title={`${formatCount(token.count)} times; token id ${formatCount(token.id)}`}>
            <td>
              <Link to={links.page("experts", { token: token.text })} aria-label={`Experts that fire on ${token.text}`}>
                <TokenChip text={token.text} />
              </Link>
            </td>
            <td className="bar-cell">
              <i style={{ width: `${(100 * token.share) / largestShare}%` }} />
            </td>
            <td className="num">{formatShare(token.share, 1)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

interface FiresOnProps {
  readonly run: RunSummary;
  readonly row: ExpertRow;
  /** Activation to mark in the histogram. */
  readonly marker: number | null;
}

export function FiresOn({ run, row, marker }: FiresOnProps) {
  const { active_tokens: active } = row;
  return (
    <section className="answer" aria-label="Fires on">
      <div className="pane-h">
        <h2>Fires on</h2>
        <span className="note">
          {formatShare(row.density)} % of tokens, {formatCount(active)} of {formatCompact(run.indexed_tokens ?? 0)}
        </span>
      </div>
      {active < FEW_TOKENS && (
        <p className="too-few">
          Active on only {formatPlural(active, "indexed token")}: too few to say what it responds to.
        </p>
      )}
      <div className="answer-halves">
        <TopTokens tokens={row.top_tokens} />
        <div>
          <p className="dim">
            Active tokens, log count, by <Term id="activation">activation</Term>
          </p>
          <ActivationHistogram row={row} height={132} caption="activation" marker={marker} />
        </div>
      </div>
    </section>
  );
}
