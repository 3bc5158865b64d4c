/** Statistics of an expert over the indexed text. */

import type { ReactNode } from "react";

import type { Column, ExpertRow, RunSummary } from "@/api/types";
import { ColumnTerm, Term } from "@/components/terms/term";
import { useColumns } from "@/hooks/use-columns";
import { formatValue } from "@/components/experts/columns";
import { shareAbove } from "@/lib/scales/histogram";
import { formatCompact, formatCount, formatPercent } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";

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
