/** Scroll position and URL state of the experts table, kept per run for the browser tab. */

interface TablePosition {
  /** Query string: sort, filters and search. */
  readonly search: string;
  /** Pixels from the top. */
  readonly scroll: number;
}

const key = (run: string) => `mxd-experts:${run}`;

function isTablePosition(value: unknown): value is TablePosition {
  return typeof value === "object" && value !== null && "search" in value && "scroll" in value;
}

/** null if the table has not been opened in this tab. */
export function readTablePosition(run: string): TablePosition | null {
  try {
    const stored: unknown = JSON.parse(window.sessionStorage.getItem(key(run)) ?? "null");
    return isTablePosition(stored) ? stored : null;
  } catch {
    return null;
  }
}

export function saveTablePosition(run: string, position: TablePosition): void {
  window.sessionStorage.setItem(key(run), JSON.stringify(position));
}

/** Link state that asks the table to restore its scroll position. */
export const RESTORE_POSITION = { toPlace: true } as const;

export function restoresPosition(state: unknown): boolean {
  return typeof state === "object" && state !== null && "toPlace" in state;
}
