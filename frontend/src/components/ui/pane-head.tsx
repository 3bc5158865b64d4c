import type { ReactNode } from "react";

import { Term } from "@/components/terms/term";
import type { TermId } from "@/lib/text/glossary";

interface PaneHeadProps {
  readonly title: ReactNode;
  /** What the title means. */
  readonly term?: TermId;
  readonly note?: ReactNode;
  readonly wrap?: boolean;
  /** At the other end of the line. */
  readonly children?: ReactNode;
}

/** The heading of a pane. */
export function PaneHead({ title, term, note, wrap = false, children }: PaneHeadProps) {
  return (
    <div className={wrap ? "row pane-h wrap" : "row pane-h"}>
      <h2>{term === undefined ? title : <Term id={term}>{title}</Term>}</h2>
      {note !== undefined && <span className="note">{note}</span>}
      <span className="grow" />
      {children}
    </div>
  );
}
