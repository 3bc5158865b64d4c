/** Column header that sorts the table on the server. */

import { useQueryClient } from "@tanstack/react-query";
import type { ReactNode } from "react";

import type { TermId } from "@/api/types";
import { type Definition, definitionHandlers, describe } from "@/components/terms/term";
import { Icon } from "@/components/ui/icon";

export interface Sorting<K extends string> {
  readonly sort: K;
  readonly order: "asc" | "desc";
}

/** A function of the order in the address, because the second of two fast clicks comes before the first is drawn. */
export type ChangeSorting<K extends string> = (change: (now: Sorting<K>) => Sorting<K>) => void;

interface SortHeaderProps<K extends string> {
  readonly column: K;
  readonly sorting: Sorting<K>;
  readonly onSort: ChangeSorting<K>;
  readonly className?: string | undefined;
  /** Its definition is shown on hover and focus. */
  readonly term?: TermId | undefined;
  /** As a term, with a definition that is not in the glossary. */
  readonly definition?: Definition | undefined;
  readonly children: ReactNode;
}

const WORDS = { asc: "ascending", desc: "descending" } as const;

export function SortHeader<K extends string>(props: SortHeaderProps<K>) {
  const { column, sorting, onSort, className, term, definition, children } = props;
  const queries = useQueryClient();
  const isSorted = sorting.sort === column;
  return (
    <th className={className} aria-sort={isSorted ? WORDS[sorting.order] : "none"} scope="col">
      <button
        type="button"
        onClick={() =>
          onSort((now) => ({ sort: column, order: now.sort === column && now.order === "desc" ? "asc" : "desc" }))
        }
        {...(term !== undefined && definitionHandlers(term, queries))}
        {...(definition !== undefined && describe(definition))}
      >
        {isSorted && <Icon name={sorting.order === "desc" ? "arrowDown" : "arrowUp"} />}
        {term === undefined && definition === undefined ? children : <span className="term">{children}</span>}
      </button>
    </th>
  );
}
