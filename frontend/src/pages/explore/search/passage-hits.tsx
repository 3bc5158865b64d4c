/** Table of the experts that fire on a passage. */

import { Link } from "react-router";

import type { PassageHit, PassageResult } from "@/api/types";
import { CoefficientCell } from "@/components/experts/coefficient-bar";
import { ExpertLabel } from "@/components/experts/expert-link";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { Icon } from "@/components/ui/icon";
import { formatCount, formatFixed, formatShare } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";

import type { SearchParams } from "./search-params";

type Ranking = SearchParams["by"];

interface Column {
  readonly name: string;
  readonly isNumber?: boolean;
  readonly term?: TermId;
  /** The ranking that sorts by this column. */
  readonly by?: Ranking;
}

const COLUMNS: readonly Column[] = [
  { name: "Id", isNumber: true },
  { name: "Label" },
  { name: "Lift, low", isNumber: true, term: "lift", by: "lift" },
  { name: "Lift", isNumber: true },
  { name: "Lift, high", isNumber: true },
  { name: "Active on", isNumber: true },
  { name: "Summed act.", isNumber: true, term: "summed_activation", by: "mass" },
  { name: "Density, %", isNumber: true, term: "density" },
  { name: "Peak token" },
  { name: "Top tokens", term: "top_tokens" },
];

const liftText = (lift: number) => (lift >= 100 ? formatCount(lift) : formatFixed(lift, 1));

function LiftCell({ value, isBound = false }: { readonly value: number | null; readonly isBound?: boolean }) {
  return <td className={isBound ? "num dim" : "num"}>{value === null ? "–" : `× ${liftText(value)}`}</td>;
}

function Header({ column: { name, isNumber = false, term, by }, ranking }: HeaderProps) {
  const isSorted = by === ranking;
  return (
    <th scope="col" className={isNumber ? "num" : ""} aria-sort={isSorted ? "descending" : "none"}>
      {isSorted && <Icon name="arrowDown" />} {term === undefined ? name : <Term id={term}>{name}</Term>}
    </th>
  );
}

interface HeaderProps {
  readonly column: Column;
  readonly ranking: Ranking;
}

interface HitRowProps {
  readonly hit: PassageHit;
  /** Number of considered tokens. */
  readonly tokens: number;
  readonly strongest: string;
  readonly largest: number;
}

function HitRow({ hit, tokens, strongest, largest }: HitRowProps) {
  const links = usePageLinks();
  return (
    <tr>
      <td className="c-plus">
        <PlusButton expert={hit.expert} />
      </td>
      <td className="num mono">{hit.expert}</td>
      <td className="s-label">
        <Link to={links.expert(hit.expert)}>
          <ExpertLabel label={hit.label} automatic={hit.automatic} />
          {hit.label === null && <span className="sr">Expert {hit.expert}</span>}
        </Link>
      </td>
      <LiftCell value={hit.lift_low} />
      <LiftCell value={hit.lift} isBound />
      <LiftCell value={hit.lift_high} isBound />
      <td className="num">
        {hit.active.length} <span className="unit">of {formatCount(tokens)}</span>
      </td>
      <td className="num">
        <CoefficientCell value={hit.mass} largest={largest} />
      </td>
      <td className="num">{hit.density === null ? "–" : formatShare(hit.density)}</td>
      <td>
        <TokenChip text={strongest} />
      </td>
      <td className="s-tokens">
        {hit.top_tokens.slice(0, 5).map((token) => (
          <TokenChip key={token.id} text={token.text} />
        ))}
      </td>
    </tr>
  );
}

interface PassageHitsProps {
  readonly result: PassageResult;
  readonly by: Ranking;
  /** The only considered token, if one is chosen. */
  readonly position: number | null;
}

export function PassageHits({ result, by, position }: PassageHitsProps) {
  const considered = position === null ? result.tokens.filter(({ start }) => !start).length : 1;
  const largest = Math.max(...result.hits.map((hit) => hit.mass), 0);
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="passage-hits" tabIndex={0} role="region" aria-label="Matching experts">
      <table className="grid plain">
        <thead>
          <tr>
            <th className="c-plus" scope="col">
              <span className="sr">Tray</span>
            </th>
            {COLUMNS.map((column) => (
              <Header key={column.name} column={column} ranking={by} />
            ))}
          </tr>
        </thead>
        <tbody>
          {result.hits.map((hit) => (
            <HitRow
              key={hit.expert}
              hit={hit}
              tokens={considered}
              strongest={result.tokens[hit.peak]?.text ?? ""}
              largest={largest}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}
