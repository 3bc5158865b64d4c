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
import { formatCount, formatPercent } from "@/lib/text/format";

type Side = "a" | "b";

/** Three significant digits without an exponent; ratios of rare experts are small. */
const digits = (value: number) =>
  value >= 100 ? formatCount(Math.round(value)) : String(Number(value.toPrecision(2)));

/** The ratio as "× how many", in the direction in which it is above 1. */
function Ratio({ hit, side }: { readonly hit: ContrastHit; readonly side: Side }) {
  const { value, low, high } = hit.contrast.ratio;
  const [shown, from, to] = side === "a" ? [value, low, high] : [1 / value, 1 / high, 1 / low];
  return (
    <>
      × {digits(shown)}{" "}
      <span className="unit">
        ({digits(from)} to {digits(to)})
      </span>
    </>
  );
}

interface ExamplesProps {
  readonly hit: ContrastHit;
  readonly names: Readonly<Record<Side, string>>;
}

function Examples({ hit, names }: ExamplesProps) {
  const sides: readonly (readonly [string, typeof hit.examples_a])[] = [
    [names.a, hit.examples_a],
    [names.b, hit.examples_b],
  ];
  const strongest = [...hit.examples_a, ...hit.examples_b].map(({ coefficient }) => coefficient);
  const largest = Math.max(hit.max_activation ?? 0, ...strongest);
  return (
    <div className="contrast-examples">
      {sides.map(([name, contexts]) => (
        <section key={name} className="group" aria-label={`Examples in ${name}`}>
          <header>
            <h3>{name}</h3>
          </header>
          {contexts.length === 0 ? (
            <p className="dim">never active</p>
          ) : (
            <Concordance contexts={contexts} largest={largest} mode="aligned" />
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

function HitRow({ hit, side, names, isOpen, onOpen }: RowProps) {
  const links = usePageLinks();
  const { contrast } = hit;
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
        <td className="num">
          <Ratio hit={hit} side={side} />
        </td>
        <td className="num">{formatPercent(contrast.density_a)}</td>
        <td className="num">{formatPercent(contrast.density_b)}</td>
        <td className="num">
          {contrast.units_a} <span className="unit">and</span> {contrast.units_b}
        </td>
        <td className="num">{contrast.q_value < 1e-4 ? "< 0.0001" : contrast.q_value.toFixed(4)}</td>
        <td className="s-tokens">
          {hit.top_tokens.slice(0, 4).map((token) => (
            <TokenChip key={token.id} text={token.text} />
          ))}
        </td>
      </tr>
      {isOpen && (
        <tr>
          <td colSpan={10}>
            <Examples hit={hit} names={names} />
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
        <th className="num" scope="col">
          <Term id="rate_ratio">{side === "a" ? "Density A / B" : "Density B / A"}</Term>{" "}
          <span className="unit">95 %</span>
        </th>
        <th className="num" scope="col">
          <Term id="density">Density</Term> A, %
        </th>
        <th className="num" scope="col">
          Density B, %
        </th>
        <th className="num" scope="col">
          Active {unit}s <span className="unit">A and B</span>
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
}

export function ContrastTable({ result, side }: ContrastTableProps) {
  const hits = side === "a" ? result.more_in_a : result.more_in_b;
  const [open, setOpen] = useState<ReadonlySet<number>>(
    new Set(hits.slice(0, 1).map(({ contrast }) => contrast.expert)),
  );
  const names = { a: `A: ${result.a.name}`, b: `B: ${result.b.name}` };
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
              names={names}
              isOpen={open.has(hit.contrast.expert)}
              onOpen={(isOpen) => toggle(hit.contrast.expert, isOpen)}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}
