/** Result of a contrast: how many experts, how many by chance, and the table of one direction. */

import { useState } from "react";

import type { ContrastHit, ContrastResult } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import { AddToList } from "@/components/lists/add-to-list";
import { Term } from "@/components/terms/term";
import { Button } from "@/components/ui/button";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { EmptyState } from "@/components/ui/states";
import { saveFile } from "@/lib/browser/save-file";
import { formatCount, formatPlural } from "@/lib/text/format";

import { chanceText, controlFails } from "./chance";
import { contrastCsv, contrastJson } from "./contrast-export";
import { ContrastTable } from "./contrast-table";
import type { Side } from "./ratio-text";

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

interface SummaryProps {
  readonly result: ContrastResult;
  readonly numExperts: number;
}

function Summary({ result, numExperts }: SummaryProps) {
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
  const name = `${result.run}-${result.a.name}-${result.b.name}`;
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
        <Button icon="download" onClick={() => saveFile(`${name}.json`, contrastJson(result), "application/json")}>
          JSON
        </Button>
        <Button icon="download" onClick={() => saveFile(`${name}.csv`, contrastCsv(result), "text/csv")}>
          CSV
        </Button>
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
