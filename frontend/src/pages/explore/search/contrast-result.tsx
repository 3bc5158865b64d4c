/** Result of a contrast: how many experts, how many by chance, and the table of one direction. */

import { type ReactNode, useState } from "react";

import type { ContrastHit, ContrastResult } from "@/api/types";
import { shownAutomatic } from "@/components/experts/expert-link";
import { AddToList } from "@/components/lists/add-to-list";
import { Term } from "@/components/terms/term";
import { Concordance } from "@/components/tokens/concordance";
import { ExportMenu } from "@/components/ui/action-menu";
import { Button, UnfoldButton } from "@/components/ui/button";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { EmptyState } from "@/components/ui/states";
import { formatCount, formatPercent, formatPlural } from "@/lib/text/format";

import { contrastCsv, ratioText, type Side } from "./contrast-values";
import { type FoundColumn, FoundTable, useParts } from "./found-table";

const qText = (q: number) => (q < 1e-4 ? "< 0.0001" : q.toFixed(4));

function Examples({ hit, result }: { readonly hit: ContrastHit; readonly result: ContrastResult }) {
  const { a, b, unit } = result;
  const { contrast } = hit;
  const sides = [
    { side: "A", text: a, examples: hit.examples_a, units: contrast.units_a, density: contrast.density_a },
    { side: "B", text: b, examples: hit.examples_b, units: contrast.units_b, density: contrast.density_b },
  ];
  const strongest = [...hit.examples_a, ...hit.examples_b].map(({ activation }) => activation);
  const largest = Math.max(hit.max_activation ?? 0, ...strongest);
  return (
    <div className="stack contrast-examples">
      {sides.map(({ side, text, examples, units, density }) => (
        <section key={side} aria-label={`Examples in ${side}: ${text.name}`}>
          <header className="row wrap">
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

interface ContrastTableProps {
  readonly result: ContrastResult;
  readonly side: Side;
  readonly hits: readonly ContrastHit[];
}

function Ratio({ contrast, warning, side }: ContrastHit & { readonly side: Side }) {
  const ratio = ratioText(contrast, side);
  return (
    <>
      {ratio.value} <span className="unit">({ratio.interval})</span>
      {warning !== null && <span className="unit bad block">{warning}</span>}
    </>
  );
}

/** Experts that are more frequent in one of two texts. A row opens to examples from both. */
function ContrastTable({ result, side, hits }: ContrastTableProps) {
  const [open, setOpen] = useState<readonly number[]>(hits.slice(0, 1).map(({ contrast }) => contrast.expert));
  const isOpen = ({ contrast }: ContrastHit) => open.includes(contrast.expert);
  const toggle = (hit: ContrastHit) => {
    const { expert } = hit.contrast;
    setOpen(isOpen(hit) ? open.filter((each) => each !== expert) : [...open, expert]);
  };
  const number = (
    key: string,
    name: ReactNode,
    cell: FoundColumn<ContrastHit>["cell"],
    from: FoundColumn<ContrastHit>["from"] = "laptop",
  ): FoundColumn<ContrastHit> => ({ key, name, isNumber: true, from, cell });
  return (
    <FoundTable
      label="Experts that tell the texts apart"
      rows={hits}
      found={(hit) => ({ ...hit, expert: hit.contrast.expert, topTokens: hit.top_tokens })}
      lead={{
        key: "lead",
        name: <span className="sr">Examples</span>,
        cell: (hit) => (
          <UnfoldButton
            className="bare"
            aria-label={`Examples of expert ${hit.contrast.expert}`}
            isOpen={isOpen(hit)}
            onOpen={() => toggle(hit)}
          />
        ),
      }}
      columns={[
        number(
          "ratio",
          <>
            <Term id="rate_ratio">{side === "a" ? "Density A / B" : "Density B / A"}</Term>{" "}
            <span className="unit">95 % interval</span>
          </>,
          (hit) => <Ratio {...hit} side={side} />,
          "phone",
        ),
        number(
          "densities",
          <>
            <Term id="density">Density</Term>, % <span className="unit">A, B</span>
          </>,
          ({ contrast }) => `${formatPercent(contrast.density_a)}, ${formatPercent(contrast.density_b)}`,
        ),
        number(
          "units",
          <>
            Active in <span className="unit">{result.unit}s A, B</span>
          </>,
          ({ contrast }) => `${contrast.units_a}, ${contrast.units_b}`,
        ),
        number("q", <Term id="q_value">q</Term>, ({ contrast }) => qText(contrast.q_value), "tablet"),
      ]}
      below={(hit) => (isOpen(hit) ? <Examples hit={hit} result={result} /> : null)}
    />
  );
}

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

function Summary({ result, numExperts }: { readonly result: ContrastResult; readonly numExperts: number }) {
  const { a, b, unit, tested, min_tokens, min_units, warnings, control } = result;
  const size = ({ units, tokens }: ContrastResult["a"]) =>
    `${formatPlural(units, unit)}, ${formatCount(tokens)} tokens`;
  return (
    <div className="contrast-summary">
      <p>
        Of {formatCount(tested)} tested experts, {formatCount(result.found_a)} are active more often in{" "}
        {textName("A", a)} and {formatCount(result.found_b)} in {textName("B", b)}, with a{" "}
        <Term id="q_value">false discovery rate</Term> of 5 %.
      </p>
      <ul className="dim">
        {warnings.map((warning) => (
          <li key={warning} className="bad">
            {warning}
          </li>
        ))}
        <li>
          A: {size(a)}. B: {size(b)}. Any difference between them can be the cause: topic, style, length or source.
        </li>
        <li>Control, {control}</li>
        <li>
          Tested: {formatCount(tested)} of {formatCount(numExperts)} experts, those with at least {min_tokens} active
          tokens in at least {min_units} {unit}s of both texts together. Order: lower end of the ratio’s interval.
        </li>
      </ul>
    </div>
  );
}

export function ResultView({ result, numExperts, side, onSide }: ResultViewProps) {
  const [onlyLabelled, setOnlyLabelled] = useState(false);
  const found = side === "a" ? result.more_in_a : result.more_in_b;
  const hits = onlyLabelled ? found.filter(isLabelled) : found;
  const [shown, more] = useParts(hits);
  return (
    <>
      <Summary result={result} numExperts={numExperts} />
      <div className="row wrap contrast-bar">
        <SegmentedControl
          label="Direction"
          value={side}
          onChange={onSide}
          segments={segmentsOf({
            a: `More often in A: ${formatCount(result.found_a)}`,
            b: `More often in B: ${formatCount(result.found_b)}`,
          })}
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
      {more}
    </>
  );
}
