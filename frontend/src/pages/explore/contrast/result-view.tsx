/** Result of a contrast: how many experts, how many by chance, and the table of one direction. */

import { Fragment, useState } from "react";
import { Link } from "react-router";

import type { ContrastHit, ContrastResult } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import { ExpertLabel } from "@/components/experts/expert-link";
import { AddToList } from "@/components/lists/add-to-list";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { Concordance } from "@/components/tokens/concordance";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { Button } from "@/components/ui/button";
import { ExportMenu } from "@/components/ui/export-menu";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { EmptyState } from "@/components/ui/states";
import { useIsNarrow } from "@/hooks/use-is-narrow";
import { formatCount, formatPercent, formatPlural } from "@/lib/text/format";

import { chanceText, contrastCsv, controlFails, ratioText, type Side, singleUnit } from "./contrast-values";

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
    { side: "A", text: a, examples: hit.examples_a, units: contrast.units_a, density: contrast.density_a },
    { side: "B", text: b, examples: hit.examples_b, units: contrast.units_b, density: contrast.density_b },
  ];
  const strongest = [...hit.examples_a, ...hit.examples_b].map(({ activation }) => activation);
  const largest = Math.max(hit.max_activation ?? 0, ...strongest);
  return (
    <div className="contrast-examples">
      {sides.map(({ side, text, examples, units, density }) => (
        <section key={side} className="group" aria-label={`Examples in ${side}: ${text.name}`}>
          <header>
            <h2>
              {text.name === side ? `Text ${side}` : `${side}: ${text.name}`}{" "}
              <span className="unit">
                (density {formatPercent(density)} %, active in {formatCount(units)} of {formatPlural(text.units, unit)})
              </span>
            </h2>
          </header>
          {examples.length > 0 ? (
            <Concordance examples={examples} largest={largest} mode="aligned" />
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
            <ExpertLabel label={hit.label} automatic={hit.automatic} expert={contrast.expert} />
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

/** Experts that are more frequent in one of two texts. A row opens to examples from both. */
function ContrastTable({ result, side, hits }: ContrastTableProps) {
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

/** Experts shown at first, and by each press of the button below them. */
const PART = 50;
const MORE = 200;

/** With fewer documents per text, the test misses clear differences. */
const FEW_DOCUMENTS = 30;

const isLabelled = ({ label, automatic }: ContrastHit) => label !== null || shownAutomatic(automatic) !== null;

interface ResultViewProps {
  readonly result: ContrastResult;
  /** Number of experts of the run. */
  readonly numExperts: number;
  readonly side: Side;
  readonly onSide: (side: Side) => void;
}

/** A kind of the indexed text has a name; an own text has only its letter. */
const textName = (side: string, { name }: ContrastResult["a"]) => (name === side ? side : `${side} (${name})`);

const CONTROL_FAILS = " Chance may explain more than 5 % of the list. Do not rely on it; use more documents.";

function Summary({ result, numExperts }: { readonly result: ContrastResult; readonly numExperts: number }) {
  const { a, b, unit, tested, min_tokens, min_units, chance } = result;
  const size = ({ units, tokens }: ContrastResult["a"]) =>
    `${formatPlural(units, unit)}, ${formatCount(tokens)} tokens`;
  return (
    <div className="contrast-summary">
      <p className="verdict">
        Of {formatCount(tested)} tested experts, {formatCount(result.found_a)} are active more often in{" "}
        {textName("A", a)} and {formatCount(result.found_b)} in {textName("B", b)}, with a{" "}
        <Term id="q_value">false discovery rate</Term> of 5 %.
      </p>
      <ul className="dim">
        {unit === "sequence" && (
          <li className="bad">
            Not reliable: a text has fewer than 10 documents, so sequences are counted as independent. Those of one
            document are not, so the test can find too many experts, which the control does not show. Use at least 10
            documents per text.
          </li>
        )}
        {unit === "document" && Math.min(a.units, b.units) < FEW_DOCUMENTS && (
          <li className="bad">
            Few documents: {formatCount(a.units)} in A, {formatCount(b.units)} in B. With fewer than {FEW_DOCUMENTS} per
            text, the test can miss clear differences. Use more tokens per text or add documents.
          </li>
        )}
        <li>
          A: {size(a)}. B: {size(b)}. Any difference between them can be the cause: topic, style, length or source.
        </li>
        <li className={controlFails(result) ? "bad" : undefined}>
          Control, {unit}s assigned to A and B at random, {chance.shuffles} times: {chanceText(result)}.
          {controlFails(result) && CONTROL_FAILS}
        </li>
      </ul>
      <details>
        <summary>Tested experts and their order</summary>
        <ul className="dim">
          <li>
            Tested: {formatCount(tested)} of {formatCount(numExperts)} experts, those with at least {min_tokens} active
            tokens in at least {min_units} {unit}s of both texts together.
          </li>
          <li>
            Order: lower end of the ratio’s interval, largest first. A ratio that rests on a single {unit} is marked: it
            is not reliable.
          </li>
        </ul>
      </details>
    </div>
  );
}

export function ResultView({ result, numExperts, side, onSide }: ResultViewProps) {
  const [onlyLabelled, setOnlyLabelled] = useState(false);
  const [numShown, setNumShown] = useState(PART);
  const found = side === "a" ? result.more_in_a : result.more_in_b;
  const hits = onlyLabelled ? found.filter(isLabelled) : found;
  const shown = hits.slice(0, numShown);
  return (
    <>
      <Summary result={result} numExperts={numExperts} />
      <div className="contrast-bar">
        <SegmentedControl
          label="Direction"
          value={side}
          onChange={onSide}
          segments={[
            { value: "a", label: `More often in A: ${formatCount(result.found_a)}` },
            { value: "b", label: `More often in B: ${formatCount(result.found_b)}` },
          ]}
        />
        <Button
          variant={onlyLabelled ? "chosen" : "plain"}
          aria-pressed={onlyLabelled}
          onClick={() => setOnlyLabelled(!onlyLabelled)}
        >
          Labelled only
        </Button>
        <span className="count" role="status">
          <b>{formatCount(shown.length)}</b> of {formatCount(hits.length)} shown
        </span>
        <span className="grow" />
        <AddToList run={result.run} experts={shown.map(({ contrast }) => contrast.expert)} label="Add shown to list" />
        <ExportMenu
          name={`${result.run}-${result.a.name}-${result.b.name}`}
          csv={() => contrastCsv(result)}
          json={() => result}
        />
      </div>
      {hits.length === 0 ? (
        <EmptyState
          title={
            found.length === 0
              ? `No expert is active clearly more often in ${side.toUpperCase()}`
              : "None of these experts has a label"
          }
        >
          {found.length === 0 && "With more tokens per text, or more documents, the test finds smaller differences."}
        </EmptyState>
      ) : (
        <ContrastTable key={side} result={result} side={side} hits={shown} />
      )}
      {hits.length > shown.length && (
        <Button className="contrast-more" onClick={() => setNumShown(numShown + MORE)}>
          Show {formatCount(Math.min(MORE, hits.length - shown.length))} more of {formatCount(hits.length)}
        </Button>
      )}
    </>
  );
}
