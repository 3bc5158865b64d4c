/** Which rows of one height are in sight, a block at a time: scrolling within a block draws nothing anew. */

/** Rows that come and go together. */
export const BLOCK = 4;
/** Rows beyond either edge of the screen, so that fast scrolling shows rows and not white. */
const BEYOND = 8;

export interface RowRange {
  readonly first: number;
  /** The first that is not drawn. */
  readonly end: number;
}

/** The block that lies at the top of the screen; `above` pixels of the table are above it (negative: none). */
export function blockAt(above: number, rowHeight: number): number {
  return Math.max(0, Math.floor(above / (rowHeight * BLOCK)));
}

/** The rows to draw, of `count`, on a screen `height` pixels high that begins in `block`. */
export function rowsInSight(block: number, count: number, rowHeight: number, height: number): RowRange {
  const top = block * BLOCK;
  const bottom = top + BLOCK + Math.ceil(height / rowHeight);
  return { first: Math.max(0, Math.min(count, top) - BEYOND), end: Math.min(count, bottom + BEYOND) };
}
