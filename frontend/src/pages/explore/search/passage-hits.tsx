/** Table of the experts that fire on a passage. */

import { Link } from "react-router";

import type { PassageHit, PassageResult } from "@/api/types";
import { CoefficientCell } from "@/components/experts/coefficient-bar";
import { ExpertLabel } from "@/components/experts/expert-link";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";

interface Column {
  readonly name: string;
  readonly unit?: string;
  readonly isNumber?: boolean;
  readonly term?: TermId;
}

const COLUMNS: readonly Column[] = [
  { name: "Id", isNumber: true },
  { name: "Label" },
  { name: "Lift", unit: "95 % interval", isNumber: true, term: "lift" },
  { name: "Active on", unit: "tokens", isNumber: true },
  { name: "Summed act.", isNumber: true, term: "summed_activation" },
  { name: "Density, %", isNumber: true, term: "density" },
  { name: "Peak token" },
  { name: "Top tokens", term: "top_tokens" },
];

const liftText = (lift: number) => (lift >= 100 ? formatCount(lift) : formatFixed(lift, 1));

function LiftCell({ lift, lift_low: low, lift_high: high }: Pick<PassageHit, "lift" | "lift_low" | "lift_high">) {
  if (lift === null || low === null || high === null) return "–";
  return (
    <>
      × {liftText(lift)}{" "}
      <span className="unit">
        ({liftText(low)} to {liftText(high)})
      </span>
    </>
  );
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
      <td className="num">
        <LiftCell {...hit} />
      </td>
      <td className="num">
        {hit.active.length} <span className="unit">of {formatCount(tokens)}</span>
      </td>
      <td className="num">
        <CoefficientCell value={hit.mass} largest={largest} />
      </td>
      <td className="num">{hit.density === null ? "–" : formatPercent(hit.density)}</td>
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
  /** The only considered token, if one is chosen. */
  readonly position: number | null;
}

export function PassageHits({ result, position }: PassageHitsProps) {
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
            {COLUMNS.map(({ name, unit, isNumber = false, term }) => (
              <th key={name} scope="col" className={isNumber ? "num" : ""}>
                {term === undefined ? name : <Term id={term}>{name}</Term>} <span className="unit">{unit}</span>
              </th>
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
