/** Result of a contrast: how many experts, how many by chance, and the table of one direction. */

import type { ContrastResult } from "@/api/types";
import { AddToList } from "@/components/lists/add-to-list";
import { Term } from "@/components/terms/term";
import { Button } from "@/components/ui/button";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { EmptyState } from "@/components/ui/states";
import { saveFile } from "@/lib/browser/save-file";
import { formatCount, formatFixed } from "@/lib/text/format";

import { contrastCsv, contrastJson } from "./contrast-export";
import { ContrastTable } from "./contrast-table";

type Side = "a" | "b";

interface ResultViewProps {
  readonly result: ContrastResult;
  readonly side: Side;
  readonly onSide: (side: Side) => void;
}

function Summary({ result }: { readonly result: ContrastResult }) {
  const { a, b, unit, tested, min_tokens, min_units, chance } = result;
  const size = ({ units, tokens }: ContrastResult["a"]) =>
    `${formatCount(units)} ${unit}s, ${formatCount(tokens)} tokens`;
  return (
    <div className="contrast-summary">
      <p className="verdict">
        {formatCount(result.found_a)} of {formatCount(tested)} experts are active more often in A ({a.name}) and{" "}
        {formatCount(result.found_b)} in B ({b.name}), with <Term id="q_value">q</Term> ≤ 0.05.{" "}
        {formatFixed(chance.mean_found, 1)} would be found by chance.
      </p>
      <p className="dim">
        A: {size(a)}. B: {size(b)}. Tested experts have at least {min_tokens} active tokens in {min_units} {unit}s.
        Chance: mean of {chance.shuffles} random assignments of {unit}s to the texts. Sorted by the lower end of the
        ratio’s interval.
        {unit === "sequence" && (
          <>
            {" "}
            <span className="bad">
              A text has fewer than 10 documents, so sequences are the unit. Sequences of one document are not
              independent, and the intervals are too narrow.
            </span>
          </>
        )}
      </p>
    </div>
  );
}

export function ResultView({ result, side, onSide }: ResultViewProps) {
  const hits = side === "a" ? result.more_in_a : result.more_in_b;
  const numFound = side === "a" ? result.found_a : result.found_b;
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
        <span className="count" role="status">
          <b>{formatCount(hits.length)}</b> of {formatCount(numFound)} shown
        </span>
        <span className="grow" />
        <AddToList run={result.run} experts={hits.map(({ contrast }) => contrast.expert)} label="Add all to list" />
        <Button icon="download" onClick={() => saveFile(`${name}.json`, contrastJson(result), "application/json")}>
          JSON
        </Button>
        <Button icon="download" onClick={() => saveFile(`${name}.csv`, contrastCsv(result), "text/csv")}>
          CSV
        </Button>
      </div>
      {hits.length === 0 ? (
        <EmptyState title="No expert is found more often in this text" />
      ) : (
        <ContrastTable key={side} result={result} side={side} />
      )}
    </>
  );
}
