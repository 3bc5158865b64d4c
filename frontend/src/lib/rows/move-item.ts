/** Move the item at `from` to `to`, clamped to the ends. */
export function moveItem<T>(items: readonly T[], from: number, to: number): readonly T[] {
  const index = Math.min(items.length - 1, Math.max(0, to));
  const rest = items.filter((_, i) => i !== from);
  return [...rest.slice(0, index), ...items.slice(from, from + 1), ...rest.slice(index)];
}
