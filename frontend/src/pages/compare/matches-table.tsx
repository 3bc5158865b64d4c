/** Pairs of experts, of which only those on screen exist; on narrow screens one stands above the other. */

import { useMemo } from "react";
import { Link } from "react-router";

import type { ComparedExpert, MatchedPair, RunComparison } from "@/api/types";
import { Button } from "@/components/button";
import { ExpertLabel } from "@/components/expert-ref";
import { pageLinks } from "@/components/links";
import { useIsNarrow } from "@/components/media";
import { EmptyState } from "@/components/states";
import { SortHeader } from "@/components/table/sort-header";
import { VirtualRows } from "@/components/table/virtual-rows";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatFixed, formatPercent } from "@/lib/format";

import type { CompareParams, MatchSort, SetCompareParams } from "./compare-params";
import { orderedPairs } from "./match-order";

const ROW_HEIGHT = 31;
const NARROW_ROW_HEIGHT = 60;
const FULL_BAR = 33;

interface MatchesTableProps {
  readonly comparison: RunComparison;
  readonly params: CompareParams;
  readonly setParams: SetCompareParams;
}

interface HeadProps extends MatchesTableProps {
  readonly isNarrow: boolean;
}

function Head({ comparison, params, setParams, isNarrow }: HeadProps) {
  const sorted = {
    sorting: { key: params.sort, order: params.order },
    onSort: ({ key, order }: { key: MatchSort; order: "asc" | "desc" }) => setParams({ sort: key, order }, "push"),
  };
  const usage = (column: MatchSort) => (
    <SortHeader<MatchSort> column={column} className="c-usage num" {...sorted}>
      <span>
        Usage <span className="unit">%</span>
      </span>
    </SortHeader>
  );
  const name = (run: string) => (
    <th className="c-label mono" scope="col">
      {run}
    </th>
  );
  const cosine = (
    <SortHeader<MatchSort> column="cosine" className="c-cosine num" {...sorted}>
      Cosine
    </SortHeader>
  );
  if (isNarrow) {
    return (
      <tr>
        <th className="c-label" scope="col">
          <span className="mono">{comparison.run}</span>, <span className="mono">{comparison.other}</span>
        </th>
        {usage("usage")}
        {cosine}
      </tr>
    );
  }
  return (
    <tr>
      {cosine}
      <th className="c-mutual" scope="col">
        Mutual
      </th>
      {name(comparison.run)}
      <th className="c-tokens" scope="col">
        Top tokens
      </th>
      {usage("usage")}
      {name(comparison.other)}
      <th className="c-tokens" scope="col">
        Top tokens
      </th>
      {usage("other_usage")}
    </tr>
  );
}

interface ExpertProps {
  readonly run: string;
  readonly expert: ComparedExpert;
}

function ExpertLink({ run, expert, withTokens }: ExpertProps & { readonly withTokens: readonly string[] }) {
  return (
    <Link to={pageLinks(run).expert(expert.expert)}>
      <span className="mono id">{expert.expert}</span>{" "}
      <ExpertLabel label={expert.label} automatic={expert.automatic} topTokens={withTokens} />
      <span className="sr"> of {run}</span>
    </Link>
  );
}

function ExpertCells({ run, expert }: ExpertProps) {
  return (
    <>
      <td className="c-label">
        <ExpertLink run={run} expert={expert} withTokens={[]} />
      </td>
      <td className="c-tokens">
        {expert.top_tokens.map((text, i) => (
          <TokenChip key={i} text={text} />
        ))}
      </td>
      <td className="num c-usage">{formatPercent(expert.usage)}</td>
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
        <i style={{ width: Math.round(FULL_BAR * Math.max(0, pair.cosine)) }} />
        {formatFixed(pair.cosine)}
      </td>
      <td className="c-mutual">{pair.mutual ? "mutual" : <span className="dim">one way</span>}</td>
      <ExpertCells run={comparison.run} expert={pair.one} />
      <ExpertCells run={comparison.other} expert={pair.other} />
    </tr>
  );
}

function NarrowRow({ comparison, pair }: RowProps) {
  return (
    <tr>
      <td className="c-label">
        <ExpertLink run={comparison.run} expert={pair.one} withTokens={pair.one.top_tokens} />
        <ExpertLink run={comparison.other} expert={pair.other} withTokens={pair.other.top_tokens} />
      </td>
      <td className="num c-usage">
        <span>{formatPercent(pair.one.usage)}</span>
        <span>{formatPercent(pair.other.usage)}</span>
      </td>
      <td className="num c-cosine">
        <span>{formatFixed(pair.cosine)}</span>
        <span className={pair.mutual ? "" : "dim"}>{pair.mutual ? "mutual" : "one way"}</span>
      </td>
    </tr>
  );
}

/** All pairs came at once: there is nothing to ask for at the end. */
const nothingMore = () => undefined;

export function MatchesTable({ comparison, params, setParams }: MatchesTableProps) {
  const isNarrow = useIsNarrow();
  const { sort, order, mutual } = params;
  const pairs = useMemo(
    () => orderedPairs(comparison.pairs, { sort, order, mutual }),
    [comparison.pairs, sort, order, mutual],
  );
  const Row = isNarrow ? NarrowRow : WideRow;
  if (pairs.length === 0) {
    return (
      <EmptyState title="No match is mutual">
        <Button size="small" onClick={() => setParams({ mutual: false }, "push")}>
          Show all
        </Button>
      </EmptyState>
    );
  }
  return (
    <table className="grid matches-table" aria-label="Pairs of experts" aria-rowcount={pairs.length + 1}>
      <thead>
        <Head comparison={comparison} params={params} setParams={setParams} isNarrow={isNarrow} />
      </thead>
      <VirtualRows count={pairs.length} rowHeight={isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT} onNearEnd={nothingMore}>
        {(index) => {
          const pair = pairs[index];
          return pair && <Row key={pair.one.expert} comparison={comparison} pair={pair} />;
        }}
      </VirtualRows>
    </table>
  );
}
