/** Experts that are more frequent in one of two texts. A row opens to examples from both. */

import { Fragment, useState } from "react";
import { Link } from "react-router";

import type { ContrastHit, ContrastResult } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { Concordance } from "@/components/tokens/concordance";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { Button } from "@/components/ui/button";
import { useIsNarrow } from "@/hooks/use-is-narrow";
import { formatCount, formatPercent, formatPlural } from "@/lib/text/format";

import { ratioText, type Side, singleUnit } from "./ratio-text";

/** The style sheet hides the other columns on narrow screens. */
const NARROW_COLUMNS = 5;

const qText = (q: number) => (q < 1e-4 ? "< 0.0001" : q.toFixed(4));

interface ExamplesProps {
  readonly hit: ContrastHit;
  readonly result: ContrastResult;
}

function Examples({ hit, result }: ExamplesProps) {
  const { a, b, unit } = result;
  const { contrast } = hit;
  const sides = [
    { side: "A", text: a, contexts: hit.examples_a, units: contrast.units_a, density: contrast.density_a },
    { side: "B", text: b, contexts: hit.examples_b, units: contrast.units_b, density: contrast.density_b },
  ];
  const strongest = [...hit.examples_a, ...hit.examples_b].map(({ coefficient }) => coefficient);
  const largest = Math.max(hit.max_activation ?? 0, ...strongest);
  return (
    <div className="contrast-examples">
      {sides.map(({ side, text, contexts, units, density }) => (
        <section key={side} className="group" aria-label={`Examples in ${side}: ${text.name}`}>
          <header>
            <h2>
              {text.name === side ? `Text ${side}` : `${side}: ${text.name}`}{" "}
              <span className="unit">
                (density {formatPercent(density)} %, active in {formatCount(units)} of {formatPlural(text.units, unit)})
              </span>
            </h2>
          </header>
          {contexts.length > 0 ? (
            <Concordance contexts={contexts} largest={largest} mode="aligned" />
          ) : (
            <p className="dim">
              {units === 0 ? "never active" : "Only the first 50 experts of each direction have examples here."}
            </p>
          )}
        </section>
      ))}
    </div>
  );
}

interface RowProps extends ExamplesProps {
  readonly side: Side;
  readonly isOpen: boolean;
  readonly onOpen: (isOpen: boolean) => void;
}

function HitRow({ hit, side, result, isOpen, onOpen }: RowProps) {
  const links = usePageLinks();
  const { contrast } = hit;
  const ratio = ratioText(contrast, side);
  const warning = singleUnit(contrast, result.unit);
  const isNarrow = useIsNarrow();
  return (
    <Fragment>
      <tr>
        <td className="c-plus">
          <PlusButton expert={contrast.expert} />
        </td>
        <td>
          <Button
            variant="ghost"
            className="bare"
            icon={isOpen ? "chevronUp" : "chevronDown"}
            aria-label={`Examples of expert ${contrast.expert}`}
            aria-expanded={isOpen}
            onClick={() => onOpen(!isOpen)}
          />
        </td>
        <td className="num mono">{contrast.expert}</td>
        <td className="s-label">
          <Link to={links.expert(contrast.expert)}>
            <ExpertLabel label={hit.label} automatic={hit.automatic} />
            {hit.label === null && <span className="sr">Expert {contrast.expert}</span>}
          </Link>
        </td>
        <td className="num c-ratio">
          {ratio.value} <span className="unit">({ratio.interval})</span>
          {warning !== null && <span className="unit single">{warning}</span>}
        </td>
        <td className="num">{formatPercent(contrast.density_a)}</td>
        <td className="num">{formatPercent(contrast.density_b)}</td>
        <td className="num">
          {contrast.units_a} <span className="unit">and</span> {contrast.units_b}
        </td>
        <td className="num">{qText(contrast.q_value)}</td>
        <td className="s-tokens">
          {hit.top_tokens.slice(0, 4).map((token) => (
            <TokenChip key={token.id} text={token.text} />
          ))}
        </td>
      </tr>
      {isOpen && (
        <tr>
          <td colSpan={isNarrow ? NARROW_COLUMNS : 10}>
            <Examples hit={hit} result={result} />
          </td>
        </tr>
      )}
    </Fragment>
  );
}

function TableHead({ unit, side }: { readonly unit: ContrastResult["unit"]; readonly side: Side }) {
  return (
    <thead>
      <tr>
        <th className="c-plus" scope="col">
          <span className="sr">Tray</span>
        </th>
        <th scope="col">
          <span className="sr">Examples</span>
        </th>
        <th className="num" scope="col">
          Id
        </th>
        <th scope="col">Label</th>
        <th className="num c-ratio" scope="col">
          <Term id="rate_ratio">{side === "a" ? "Density A / B" : "Density B / A"}</Term>{" "}
          <span className="unit">95 % interval</span>
        </th>
        <th className="num" scope="col">
          <Term id="density">Density</Term> A, %
        </th>
        <th className="num" scope="col">
          Density B, %
        </th>
        <th className="num" scope="col">
          Active&nbsp;{unit}s <span className="unit">A and B</span>
        </th>
        <th className="num" scope="col">
          <Term id="q_value">q</Term>
        </th>
        <th scope="col">
          <Term id="top_tokens">Top tokens</Term>
        </th>
      </tr>
    </thead>
  );
}

interface ContrastTableProps {
  readonly result: ContrastResult;
  readonly side: Side;
  readonly hits: readonly ContrastHit[];
}

export function ContrastTable({ result, side, hits }: ContrastTableProps) {
  const [open, setOpen] = useState<ReadonlySet<number>>(
    new Set(hits.slice(0, 1).map(({ contrast }) => contrast.expert)),
  );
  const toggle = (expert: number, isOpen: boolean) => {
    const others = [...open].filter((each) => each !== expert);
    setOpen(new Set(isOpen ? [...others, expert] : others));
  };
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="contrast-hits" tabIndex={0} role="region" aria-label="Experts that tell the texts apart">
      <table className="grid plain">
        <TableHead unit={result.unit} side={side} />
        <tbody>
          {hits.map((hit) => (
            <HitRow
              key={hit.contrast.expert}
              hit={hit}
              side={side}
              result={result}
              isOpen={open.has(hit.contrast.expert)}
              onOpen={(isOpen) => toggle(hit.contrast.expert, isOpen)}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}
