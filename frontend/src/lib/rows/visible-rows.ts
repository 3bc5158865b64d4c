/**
 * Virtual scrolling of equally high rows, one block of rows at a time, so that scrolling within a block does not
 * re-render.
 */

/** Rows per block. */
export const BLOCK_ROWS = 4;
/** Extra rows above and below the screen, so that fast scrolling does not show blank rows. */
const OVERSCAN_ROWS = 8;

interface RowRange {
  readonly first: number;
  /** Exclusive. */
  readonly end: number;
}

/**
 * The block at the top of the screen; `above` is the number of pixels of the table above the screen (negative: none).
 */
export function blockAt(above: number, rowHeight: number): number {
  return Math.max(0, Math.floor(above / (rowHeight * BLOCK_ROWS)));
}

/** The rows to render, of `count`, on a screen of `height` pixels whose top is in `block`. */
export function visibleRows(block: number, count: number, rowHeight: number, height: number): RowRange {
  const top = block * BLOCK_ROWS;
  const bottom = top + BLOCK_ROWS + Math.ceil(height / rowHeight);
  return { first: Math.max(0, Math.min(count, top) - OVERSCAN_ROWS), end: Math.min(count, bottom + OVERSCAN_ROWS) };
}
