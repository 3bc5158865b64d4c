/** How well the automatic label predicts where the expert fires, on held-out text. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";

import { examplesQuery, randomExamplesQuery } from "@/api/queries";
import type { AutomaticLabel, Column, ExpertDetail, ExpertRow, RunSummary } from "@/api/types";
import { formatValue } from "@/components/experts/columns";
import { ColumnTerm, Term } from "@/components/terms/term";
import type { ExampleToken } from "@/components/tokens/concordance";
import { useColumns } from "@/hooks/use-columns";
import { shareAbove } from "@/lib/scales/histogram";
import { formatCompact, formatCount, formatFixed, formatPercent } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";
import { EXAMPLES_PER_PAGE } from "@/pages/explore/expert/examples/shown-examples";
import { RANDOM_GROUP } from "@/pages/explore/expert/expert-params";

interface FactProps {
  readonly name: ReactNode;
  readonly term?: TermId;
  readonly unit?: string | null;
  readonly children: ReactNode;
}

function Fact({ name, term, unit, children }: FactProps) {
  return (
    <>
      <dt>{term === undefined ? name : <Term id={term}>{name}</Term>}</dt>
      <dd>
        {children} {unit && <span>{unit}</span>}
      </dd>
    </>
  );
}

/** Statistics of an expert over the indexed text. */
export function Facts({ run, row }: { readonly run: RunSummary; readonly row: ExpertRow }) {
  const columns = useColumns().filter(({ shown }) => shown.includes("expert"));
  const facts = (chosen: readonly Column[]) =>
    chosen.map((column) => (
      <Fact key={column.key} name={<ColumnTerm column={column}>{column.title}</ColumnTerm>} unit={column.unit}>
        {formatValue(column, row)}
      </Fact>
    ));
  return (
    <section>
      <div className="pane-h">
        <h2>Statistics</h2>
        <span className="note">over the indexed text</span>
      </div>
      <dl className="kv">
        {facts(columns.filter(({ key }) => key === "density"))}
        <Fact name="Active tokens" unit={`of ${formatCompact(run.indexed_tokens ?? 0)}`}>
          {formatCount(row.active_tokens)}
        </Fact>
        {row.active_tokens > 0 && facts(columns.filter(({ key }) => key !== "density"))}
        {row.active_tokens > 0 && (
          <Fact name="Above half of max" term="above_half" unit="%">
            {formatPercent(shareAbove({ counts: row.histogram, high: row.histogram_high }, row.max_activation / 2), 0)}
          </Fact>
        )}
      </dl>
    </section>
  );
}

/** The example that contains the locked token; `seed` is the random sample's. */
function useLockedExample(run: string, expert: number, lock: ExampleToken | null, seed: number) {
  const isInSample = lock?.bin === RANDOM_GROUP;
  const options = examplesQuery(run, expert, isInSample ? 0 : (lock?.bin ?? 0), EXAMPLES_PER_PAGE);
  const stored = useInfiniteQuery({ ...options, enabled: lock !== null && !isInSample });
  const sample = useQuery({ ...randomExamplesQuery(run, expert, seed), enabled: isInSample });
  if (lock === null) return undefined;
  if (isInSample) return sample.data?.examples[lock.rank];
  return stored.data?.pages.flatMap((page) => page.examples).find((candidate) => candidate.rank === lock.rank);
}

/** The activation marked in the histogram: the hovered token's, otherwise the locked one's. */
export function useHistogramMarker(run: string, expert: number, lock: ExampleToken | null, seed: number) {
  const [hovered, setHovered] = useState<number | null>(null);
  const example = useLockedExample(run, expert, lock, seed);
  const locked = example?.active.find(([position]) => position === lock?.position)?.[1] ?? null;
  return { marker: hovered ?? (lock === null ? null : locked), onHover: setHovered };
}

function Measure({ name, children }: { readonly name: ReactNode; readonly children: ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

/** A share, or why there is none. */
const share = (value: number | null, reason: string) =>
  value === null ? <span>{reason}</span> : `${formatPercent(value, 0)} %`;

interface ScoresProps {
  readonly automatic: AutomaticLabel;
  readonly interval: ExpertDetail["accuracy_interval"];
}

function Scores({ automatic, interval }: ScoresProps) {
  const { balanced_accuracy: accuracy, precision, recall, test_examples: examples } = automatic;
  if (accuracy === null) return <p className="ablation-note">Not tested.</p>;
  // Only rule-based labels have an interval, and are tested on a sample of tokens.
  const isRule = interval !== null;
  return (
    <>
      <dl className="kv">
        <Measure name="Balanced accuracy">
          {formatFixed(accuracy)}{" "}
          {isRule && (
            <span>
              ({formatFixed(interval[0])} to {formatFixed(interval[1])})
            </span>
          )}
        </Measure>
        {isRule && (
          <>
            <Measure name={<Term id="precision">Precision</Term>}>{share(precision, "no match in the sample")}</Measure>
            <Measure name={<Term id="recall">Recall</Term>}>{share(recall, "inactive in the sample")}</Measure>
          </>
        )}
      </dl>
      <p className="ablation-note">
        Balanced accuracy (0.5 is chance): on {examples} held-out examples
        {isRule ? " and on inactive tokens. Its interval (95 %, Wilson) is over the examples." : "."}
      </p>
      {isRule && (
        <p className="ablation-note">
          Precision and recall: on held-out tokens, weak activations included. Their number is not stored, so there is
          no interval.
        </p>
      )}
    </>
  );
}

export function LabelQuality({ detail }: { readonly detail: ExpertDetail }) {
  const { automatic, label } = detail.row;
  if (automatic === null) return null;
  return (
    <section>
      <div className="pane-h">
        <h2>
          <Term id="automatic_label">Automatic label</Term>
        </h2>
        <span className="note">{automatic.label}</span>
      </div>
      <Scores automatic={automatic} interval={detail.accuracy_interval} />
      {!automatic.is_clear && <p className="ablation-note">Too weak for a name: {automatic.weaknesses.join(", ")}.</p>}
      {label !== null && <p className="ablation-note">The user label is not tested.</p>}
    </section>
  );
}
