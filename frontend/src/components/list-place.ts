/** Where the reader was in the table of experts: its address and how far down. Kept for this browser tab, the last one
 *  of each run. */

export interface ListPlace {
  /** The query string: sort, filters and search. */
  readonly search: string;
  /** Pixels from the top. */
  readonly scroll: number;
}

const key = (run: string) => `mxd-experts:${run}`;

function isPlace(value: unknown): value is ListPlace {
  return typeof value === "object" && value !== null && "search" in value && "scroll" in value;
}

/** Null where the table has not been open in this tab. */
export function readPlace(run: string): ListPlace | null {
  try {
    const found: unknown = JSON.parse(window.sessionStorage.getItem(key(run)) ?? "null");
    return isPlace(found) ? found : null;
  } catch {
    return null;
  }
}

export function keepPlace(run: string, place: ListPlace): void {
  window.sessionStorage.setItem(key(run), JSON.stringify(place));
}

/** What a link says that leads back to the place, and not to the head of the table. */
export const TO_PLACE = { toPlace: true } as const;

export function leadsToPlace(state: unknown): boolean {
  return typeof state === "object" && state !== null && "toPlace" in state;
}
