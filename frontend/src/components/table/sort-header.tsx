/** Column header that sorts the table on the server. */

import type { ReactNode } from "react";

import { Icon } from "@/components/ui/icon";

export interface Sorting<K extends string> {
  readonly key: K;
  readonly order: "asc" | "desc";
}

interface SortHeaderProps<K extends string> {
  readonly column: K;
  readonly sorting: Sorting<K>;
  readonly onSort: (sorting: Sorting<K>) => void;
  readonly className?: string;
  readonly children: ReactNode;
}

const WORDS = { asc: "ascending", desc: "descending" } as const;

export function SortHeader<K extends string>({ column, sorting, onSort, className, children }: SortHeaderProps<K>) {
  const isSorted = sorting.key === column;
  const next = isSorted && sorting.order === "desc" ? "asc" : "desc";
  return (
    <th className={className} aria-sort={isSorted ? WORDS[sorting.order] : "none"} scope="col">
      <button type="button" onClick={() => onSort({ key: column, order: next })}>
        {isSorted && <Icon name={sorting.order === "desc" ? "arrowDown" : "arrowUp"} />}
        {children}
      </button>
    </th>
  );
}
