/** Statistics of an expert: density, activation histogram and top activating tokens. */

import type { ReactNode } from "react";
import { Link } from "react-router";

import type { Column, ExpertDetail, ExpertRow, RunSummary, TokenCount } from "@/api/types";
import { MiniHistogram } from "@/components/plots/mini-histogram";
import { usePageLinks } from "@/components/runs/page-links";
import { ColumnTerm, Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { useColumns } from "@/hooks/use-columns";
import { formatValue } from "@/components/experts/columns";
import { shareAbove } from "@/lib/scales/histogram";
import { formatCompact, formatCount, formatPercent, formatShare } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";
import { AblationEffects } from "@/pages/explore/expert/effects/ablation";
import { Recurrence } from "@/pages/explore/expert/related/recurrence";

import { LabelQuality } from "./label-quality";

const MAX_TOKENS = 10;

interface FactProps {
  readonly name: ReactNode;
  readonly term?: TermId;
  readonly unit?: string | null;
  readonly children: ReactNode;
}

function Fact({ name, term, unit, children }: FactProps) {
  return (
    <>
      <dt>{term === undefined ? name : <Term id={term}>{name}</Term>}</dt>
      <dd>
        {children} {unit && <span>{unit}</span>}
      </dd>
    </>
  );
}

function TopTokens({ tokens }: { readonly tokens: readonly TokenCount[] }) {
  const largestShare = tokens[0]?.share ?? 1;
  const links = usePageLinks();
  return (
    <table className="top-tokens">
      <thead className="sr">
        <tr>
          <th>Token</th>
          <th>Bar</th>
          <th>Share of active tokens, %</th>
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

function Facts({ run, row }: { readonly run: RunSummary; readonly row: ExpertRow }) {
  const columns = useColumns().filter(({ shown }) => shown.includes("expert"));
  const facts = (chosen: readonly Column[]) =>
    chosen.map((column) => (
      <Fact key={column.key} name={<ColumnTerm column={column}>{column.title}</ColumnTerm>} unit={column.unit}>
        {formatValue(column, row)}
      </Fact>
    ));
  return (
    <section>
      <div className="pane-h">
        <h2>Statistics</h2>
        <span className="note">over the indexed text</span>
      </div>
      <dl className="kv">
        {facts(columns.filter(({ key }) => key === "density"))}
        <Fact name="Active tokens" unit={`of ${formatCompact(run.indexed_tokens ?? 0)}`}>
          {formatCount(row.active_tokens)}
        </Fact>
        {row.active_tokens > 0 && facts(columns.filter(({ key }) => key !== "density"))}
        {row.active_tokens > 0 && (
          <Fact name="Above half of max" term="above_half" unit="%">
            {formatPercent(shareAbove({ counts: row.histogram, high: row.histogram_high }, row.max_activation / 2), 0)}
          </Fact>
        )}
      </dl>
    </section>
  );
}

interface StatisticsProps {
  readonly run: RunSummary;
  readonly detail: ExpertDetail;
  readonly marker: number | null;
}

export function Statistics({ run, detail, marker }: StatisticsProps) {
  const { row, recurrence } = detail;
  return (
    <div className="expert-side">
      {row.active_tokens > 0 && <AblationEffects run={run.name} expert={row.expert} />}
      <Facts run={run} row={row} />
      <LabelQuality detail={detail} />
      {row.active_tokens > 0 && (
        <>
          <section>
            <div className="pane-h">
              <h2>
                <Term id="activation">Activation</Term>
              </h2>
              <span className="note">on active tokens</span>
            </div>
            <MiniHistogram
              counts={row.histogram}
              high={row.histogram_high}
              end={row.max_activation}
              height={64}
              caption="log count"
              marker={marker}
            />
          </section>
          <section>
            <div className="pane-h">
              <h2>
                <Term id="top_tokens">Top activating tokens</Term>
              </h2>
              <span className="note">% of active tokens</span>
            </div>
            <TopTokens tokens={row.top_tokens} />
          </section>
          {recurrence !== null && <Recurrence recurrence={recurrence} row={row} />}
        </>
      )}
    </div>
  );
}
