/** Column widths by token length, and the columns in view. */

import { splitLeadingSpace, visibleText } from "@/lib/text/token-text";

const CHARACTER_WIDTH = 7.7;
const PADDING = 12;
const MIN_WIDTH = 36;
const MAX_WIDTH = 132;
/** Scripts whose characters are twice as wide in a monospaced font. */
const WIDE_CHARACTERS =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]/gu;

/** A token as a column header: without the leading space, other white space as symbols. */
export function columnText(text: string): string {
  return text === "" ? "…" : visibleText(splitLeadingSpace(text).body);
}

/** Width in whole pixels. */
export function columnWidth(text: string): number {
  const header = columnText(text);
  const characters = Array.from(header).length + (header.match(WIDE_CHARACTERS)?.length ?? 0);
  return Math.round(Math.min(MAX_WIDTH, Math.max(MIN_WIDTH, characters * CHARACTER_WIDTH + PADDING)));
}

/** A range of columns, end exclusive. */
export interface ColumnWindow {
  readonly from: number;
  readonly to: number;
}

const CHUNK = 24;
/** Texts of up to this many tokens are rendered without virtualisation. */
const MAX_UNVIRTUALISED = 96;

/** Left edge of each column, and the right edge of the last one. */
export function columnOffsets(widths: readonly number[]): readonly number[] {
  const offsets = [0];
  for (const width of widths) offsets.push((offsets.at(-1) ?? 0) + width);
  return offsets;
}

/** Columns to render for a range of pixels: whole chunks, plus one on either side. */
export function visibleColumns(offsets: readonly number[], left: number, right: number): ColumnWindow {
  const count = offsets.length - 1;
  if (count <= MAX_UNVIRTUALISED) return { from: 0, to: count };
  const first = offsets.findIndex((offset) => offset > left) - 1;
  const after = offsets.findIndex((offset) => offset >= right);
  const chunkOf = (column: number) => Math.floor(column / CHUNK);
  return {
    from: Math.max(0, chunkOf(first < 0 ? count : first) - 1) * CHUNK,
    to: Math.min(count, (chunkOf(after < 0 ? count : after) + 2) * CHUNK),
  };
}
