/** The columns of the experts. A page that needs them waits for them. */

import { useSuspenseQuery } from "@tanstack/react-query";

import { columnsQuery } from "@/api/queries";
import type { Column } from "@/api/types";

export function useColumns(): readonly Column[] {
  return useSuspenseQuery(columnsQuery).data;
}
