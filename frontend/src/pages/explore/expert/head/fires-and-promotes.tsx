/** One line under the label: the tokens that activate the expert, and the tokens that it promotes. */

import { useQuery } from "@tanstack/react-query";

import { ablationQuery } from "@/api/queries";
import type { ExpertDetail, ExpertRow } from "@/api/types";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatFixed, formatFoundAgain, formatPercent, formatPlural, formatShare } from "@/lib/text/format";

const MAX_TOKENS = 4;

/** With fewer active tokens, shares and examples are anecdotes. The server gives no co-activation shares either. */
const FEW_TOKENS = 20;

/** Rarer tokens say little about the expert. */
const MIN_SHARE = 0.05;

function mainTokens({ top_tokens }: ExpertRow): ExpertRow["top_tokens"] {
  return top_tokens.filter((token, i) => i < 2 || token.share >= MIN_SHARE);
}

interface ChipsProps {
  /** `share`: of the active tokens. */
  readonly tokens: readonly { readonly id: number; readonly text: string; readonly share?: number }[];
}

function Chips({ tokens }: ChipsProps) {
  return (
    <span className="chips">
      {tokens.slice(0, MAX_TOKENS).map((token) => (
        <span key={token.id} className="chip-share">
          <TokenChip text={token.text} />
          {token.share !== undefined && <span className="dim num">{formatPercent(token.share, 0)} %</span>}
        </span>
      ))}
    </span>
  );
}

function TooFew({ row }: { readonly row: ExpertRow }) {
  if (row.active_tokens >= FEW_TOKENS) return null;
  return (
    <span className="too-few">
      Active on only {formatPlural(row.active_tokens, "indexed token")}: too few to say what it responds to.
    </span>
  );
}

/** Lowest and highest firing cosine of the matches that count as found. */
function cosineRange(recurrence: ExpertDetail["recurrence"]): string | null {
  const found = recurrence?.matches.filter((match) => match.is_found) ?? [];
  if (found.length === 0) return null;
  const cosines = found.map((match) => match.firing_cosine);
  const [low, high] = [formatFixed(Math.min(...cosines)), formatFixed(Math.max(...cosines))];
  return low === high ? low : `${low} to ${high}`;
}

/** The main statistics, on phones only, where all of them follow the examples. */
function ShortStatistics({ row }: { readonly row: ExpertRow }) {
  return (
    <span className="short-statistics num">
      <span>
        <Term id="density">Density</Term> {formatShare(row.density)} %
      </span>
      <span>
        <Term id="mean_activation">Mean</Term> {formatFixed(row.mean_activation)}
      </span>
      <span>
        <Term id="max_activation">Max</Term> {formatFixed(row.max_activation)}
      </span>
    </span>
  );
}

interface FiresAndPromotesProps {
  readonly run: string;
  readonly detail: ExpertDetail;
}

export function FiresAndPromotes({ run, detail }: FiresAndPromotesProps) {
  const { row } = detail;
  const cosines = cosineRange(detail.recurrence);
  const ablation = useQuery(ablationQuery(run, row.expert)).data?.ablation ?? null;
  if (row.active_tokens === 0) return null;
  return (
    <p className="fires-and-promotes">
      <span>
        <Term id="top_tokens">Most often on</Term> <Chips tokens={mainTokens(row)} />
      </span>
      <TooFew row={row} />
      <ShortStatistics row={row} />
      {ablation !== null && (
        <span>
          <Term id="direct_logit_effect">Promotes</Term> <Chips tokens={ablation.promoted} />
          {!ablation.exceeds_random && <span className="dim"> no more than a random expert</span>}
        </span>
      )}
      {row.compared_runs !== null && (
        <span>
          <Term id="recurrence">Found again</Term> in {formatFoundAgain(row)} other runs
          {cosines !== null && <span className="dim num">(firing cosine {cosines})</span>}
        </span>
      )}
    </p>
  );
}
