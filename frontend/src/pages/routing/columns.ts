/** Columns as wide as their tokens, and which of them are in view. */

import { splitLead, visibleText } from "@/lib/token-text";

const CHARACTER = 7.4;
const AROUND = 12;
const NARROWEST = 29;
const WIDEST = 132;
/** Scripts that a monospaced face draws twice as wide. */
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]/gu;

/** A token as it heads its column: without the space in front, other white space as signs. */
export function columnText(text: string): string {
  return text === "" ? "…" : visibleText(splitLead(text).body);
}

/** In whole pixels. */
export function columnWidth(text: string): number {
  const shown = columnText(text);
  const characters = Array.from(shown).length + (shown.match(WIDE)?.length ?? 0);
  return Math.round(Math.min(WIDEST, Math.max(NARROWEST, characters * CHARACTER + AROUND)));
}

/** A stretch of columns, from the first to before the last. */
export interface ColumnWindow {
  readonly from: number;
  readonly to: number;
}

const CHUNK = 24;
/** Up to here all columns are drawn: no text is so long that it matters. */
const DRAW_ALL = 96;

/** Where each column begins; one more entry than there are columns. */
export function columnOffsets(widths: readonly number[]): readonly number[] {
  const offsets = [0];
  for (const width of widths) offsets.push((offsets.at(-1) ?? 0) + width);
  return offsets;
}

/** Columns to draw for what lies between two offsets: whole chunks, with one more on either side. */
export function windowOf(offsets: readonly number[], left: number, right: number): ColumnWindow {
  const count = offsets.length - 1;
  if (count <= DRAW_ALL) return { from: 0, to: count };
  const first = offsets.findIndex((offset) => offset > left) - 1;
  const after = offsets.findIndex((offset) => offset >= right);
  const chunkOf = (column: number) => Math.floor(column / CHUNK);
  return {
    from: Math.max(0, chunkOf(first < 0 ? count : first) - 1) * CHUNK,
    to: Math.min(count, (chunkOf(after < 0 ? count : after) + 2) * CHUNK),
  };
}
