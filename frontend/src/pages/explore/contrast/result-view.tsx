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
import { formatCount, formatFixed, formatPlural } from "@/lib/text/format";

import { contrastCsv, contrastJson } from "./contrast-export";
import { ContrastTable } from "./contrast-table";
import type { Side } from "./ratio-text";

/** Experts shown at first, and by each press of the button below them. */
const PART = 50;
const MORE = 200;

const isLabelled = ({ label, automatic }: ContrastHit) => label !== null || shownAutomatic(automatic) !== null;

interface ResultViewProps {
  readonly result: ContrastResult;
  readonly side: Side;
  readonly onSide: (side: Side) => void;
}

function Summary({ result }: { readonly result: ContrastResult }) {
  const { a, b, unit, tested, min_tokens, min_units, chance } = result;
  const size = ({ units, tokens }: ContrastResult["a"]) =>
    `${formatPlural(units, unit)}, ${formatCount(tokens)} tokens`;
  const byChance =
    chance.most_found === 0
      ? "none found."
      : `${formatFixed(chance.mean_found, 1)} found on average, ${formatCount(chance.most_found)} at most.`;
  const isFew = unit === "sequence";
  return (
    <div className="contrast-summary">
      <p className="verdict">
        Of {formatCount(tested)} tested experts, {formatCount(result.found_a)} are active more often in A ({a.name}) and{" "}
        {formatCount(result.found_b)} in B ({b.name}), with a <Term id="q_value">false discovery rate</Term> of 5 %.
        {isFew && " Too little text for a reliable test: treat these counts as upper limits."}
      </p>
      <ul className="dim">
        <li>
          Text A: {size(a)}. Text B: {size(b)}.
        </li>
        <li>
          Control: {unit}s assigned to A and B at random, {chance.shuffles} times: {byChance}
        </li>
        <li>
          Tested: experts with at least {min_tokens} active tokens in at least {min_units} {unit}s.
        </li>
        <li>Order: lower end of the ratio’s interval, largest first.</li>
        {isFew && (
          <>
            <li className="bad">A text has fewer than 10 documents, so sequences are the unit.</li>
            <li className="bad">
              Sequences of one document are not independent: intervals and q-values are too small, also in the control.
            </li>
            <li className="bad">Use more tokens per text.</li>
          </>
        )}
      </ul>
    </div>
  );
}

export function ResultView({ result, side, onSide }: ResultViewProps) {
  const [onlyLabelled, setOnlyLabelled] = useState(false);
  const [numShown, setNumShown] = useState(PART);
  const found = side === "a" ? result.more_in_a : result.more_in_b;
  const hits = onlyLabelled ? found.filter(isLabelled) : found;
  const shown = hits.slice(0, numShown);
  const name = `${result.run}-${result.a.name}-${result.b.name}`;
  return (
    <>
      <Summary result={result} />
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
        />
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
