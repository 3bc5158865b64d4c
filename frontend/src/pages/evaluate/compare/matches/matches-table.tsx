/** Virtualised table of matched experts. On narrow screens the two experts of a pair are stacked. */

import { useMemo, useState } from "react";
import { Link } from "react-router";

import type { ComparedExpert, MatchedPair, RunComparison } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { pageLinks } from "@/components/runs/page-links";
import { SortHeader } from "@/components/table/sort-header";
import { VirtualRows } from "@/components/table/virtual-rows";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { EmptyState } from "@/components/ui/states";
import { useIsNarrow } from "@/hooks/use-is-narrow";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";
import type { CompareParams, MatchSort, SetCompareParams } from "@/pages/evaluate/compare/compare-params";

import { sortPairs } from "./match-order";

const ROW_HEIGHT = 31;
const NARROW_ROW_HEIGHT = 60;
const MAX_BAR_WIDTH = 33;
const INITIAL_ROWS = 40;

interface MatchesTableProps {
  readonly comparison: RunComparison;
  readonly params: CompareParams;
  readonly setParams: SetCompareParams;
}

interface HeadProps extends MatchesTableProps {
  readonly isNarrow: boolean;
}

function Head({ comparison, params, setParams, isNarrow }: HeadProps) {
  const sortProps = {
    sorting: { key: params.sort, order: params.order },
    onSort: ({ key, order }: { key: MatchSort; order: "asc" | "desc" }) => setParams({ sort: key, order }, "push"),
  };
  const densityHeader = (column: MatchSort) => (
    <SortHeader<MatchSort> column={column} className="c-density num" {...sortProps}>
      <span>
        Density <span className="unit">%</span>
      </span>
    </SortHeader>
  );
  const runHeader = (run: string) => (
    <th className="c-label mono" scope="col">
      {run}
    </th>
  );
  const cosineHeader = (
    <SortHeader<MatchSort> column="cosine" className="c-cosine num" {...sortProps}>
      Cosine
    </SortHeader>
  );
  if (isNarrow) {
    return (
      <tr>
        <th className="c-label" scope="col">
          <span className="mono">{comparison.run}</span>, <span className="mono">{comparison.other}</span>
        </th>
        {densityHeader("density")}
        {cosineHeader}
      </tr>
    );
  }
  return (
    <tr>
      {cosineHeader}
      <th className="c-mutual" scope="col">
        Mutual
      </th>
      {runHeader(comparison.run)}
      <th className="c-tokens" scope="col">
        Top tokens
      </th>
      {densityHeader("density")}
      {runHeader(comparison.other)}
      <th className="c-tokens" scope="col">
        Top tokens
      </th>
      {densityHeader("other_density")}
    </tr>
  );
}

interface ExpertProps {
  readonly run: string;
  readonly expert: ComparedExpert;
}

function ComparedExpertLink({
  run,
  expert,
  withTokens: topTokens,
}: ExpertProps & { readonly withTokens: readonly string[] }) {
  return (
    <Link to={pageLinks(run).expert(expert.expert)}>
      <span className="mono id">{expert.expert}</span>{" "}
      <ExpertLabel label={expert.label} automatic={expert.automatic} topTokens={topTokens} />
      <span className="sr"> of {run}</span>
    </Link>
  );
}

function ExpertCells({ run, expert }: ExpertProps) {
  return (
    <>
      <td className="c-label">
        <ComparedExpertLink run={run} expert={expert} withTokens={[]} />
      </td>
      <td className="c-tokens">
        {expert.top_tokens.map((text, i) => (
          <TokenChip key={i} text={text} />
        ))}
      </td>
      <td className="num c-density">{formatPercent(expert.density)}</td>
    </>
  );
}

interface RowProps {
  readonly comparison: RunComparison;
  readonly pair: MatchedPair;
}

function WideRow({ comparison, pair }: RowProps) {
  return (
    <tr>
      <td className="num c-cosine">
        <i style={{ width: Math.round(MAX_BAR_WIDTH * Math.max(0, pair.cosine)) }} />
        {formatFixed(pair.cosine)}
      </td>
      <td className="c-mutual">{pair.mutual ? "mutual" : <span className="dim">one-way</span>}</td>
      <ExpertCells run={comparison.run} expert={pair.one} />
      <ExpertCells run={comparison.other} expert={pair.other} />
    </tr>
  );
}

function NarrowRow({ comparison, pair }: RowProps) {
  return (
    <tr>
      <td className="c-label">
        <ComparedExpertLink run={comparison.run} expert={pair.one} withTokens={pair.one.top_tokens} />
        <ComparedExpertLink run={comparison.other} expert={pair.other} withTokens={pair.other.top_tokens} />
      </td>
      <td className="num c-density">
        <span>{formatPercent(pair.one.density)}</span>
        <span>{formatPercent(pair.other.density)}</span>
      </td>
      <td className="num c-cosine">
        <span>{formatFixed(pair.cosine)}</span>
        <span className={pair.mutual ? "" : "dim"}>{pair.mutual ? "mutual" : "one-way"}</span>
      </td>
    </tr>
  );
}

/** All pairs are loaded in one response, so there are no further pages. */
const noMoreRows = () => undefined;

export function MatchesTable({ comparison, params, setParams }: MatchesTableProps) {
  const isNarrow = useIsNarrow();
  const { sort, order, mutual } = params;
  const pairs = useMemo(
    () => sortPairs(comparison.pairs, { sort, order, mutual }),
    [comparison.pairs, sort, order, mutual],
  );
  const [showsAll, setShowsAll] = useState(false);
  const count = showsAll ? pairs.length : Math.min(INITIAL_ROWS, pairs.length);
  const Row = isNarrow ? NarrowRow : WideRow;
  if (pairs.length === 0) {
    return (
      <EmptyState title="No mutual matches">
        <Button size="small" onClick={() => setParams({ mutual: false }, "push")}>
          Show all
        </Button>
      </EmptyState>
    );
  }
  return (
    <>
      <table className="grid matches-table" aria-label="Matched experts" aria-rowcount={pairs.length + 1}>
        <thead>
          <Head comparison={comparison} params={params} setParams={setParams} isNarrow={isNarrow} />
        </thead>
        <VirtualRows count={count} rowHeight={isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT} onNearEnd={noMoreRows}>
          {(index) => {
            const pair = pairs[index];
            return pair && <Row key={pair.one.expert} comparison={comparison} pair={pair} />;
          }}
        </VirtualRows>
      </table>
      {count < pairs.length && (
        <div className="more-matches">
          <Button size="small" onClick={() => setShowsAll(true)}>
            Show all {formatCount(pairs.length)} pairs
          </Button>
        </div>
      )}
    </>
  );
}
