/** Changing the order of a few things by hand. */

/** The same things, with the one at `from` at `to` (or the end that lies that way). */
export function moved<T>(things: readonly T[], from: number, to: number): readonly T[] {
  const place = Math.min(things.length - 1, Math.max(0, to));
  const rest = things.filter((_, i) => i !== from);
  return [...rest.slice(0, place), ...things.slice(from, from + 1), ...rest.slice(place)];
}
