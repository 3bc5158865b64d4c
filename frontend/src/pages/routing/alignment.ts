/** Two texts token by token: what stands in both, what takes the place of what, what stands in one alone. */

/** Indices into the tokens of either text; null where it has none there. */
export interface Pair {
  readonly a: number | null;
  readonly b: number | null;
}

/** lengths[i][j]: the most tokens that `a` from i on and `b` from j on have in common, in order. */
function commonLengths(a: readonly number[], b: readonly number[]): readonly Uint16Array[] {
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    const row = lengths[i] as Uint16Array;
    const below = lengths[i + 1] as Uint16Array;
    for (let j = b.length - 1; j >= 0; j--) {
      row[j] = a[i] === b[j] ? (below[j + 1] ?? 0) + 1 : Math.max(below[j] ?? 0, row[j + 1] ?? 0);
    }
  }
  return lengths;
}

/** Between two tokens that are the same: one for one as far as both go, then what one has more. */
function between(fromA: number, toA: number, fromB: number, toB: number): readonly Pair[] {
  const count = Math.max(toA - fromA, toB - fromB);
  return Array.from({ length: count }, (_, i) => ({
    a: fromA + i < toA ? fromA + i : null,
    b: fromB + i < toB ? fromB + i : null,
  }));
}

/** Pairs in the order of both texts, by the longest run of tokens that they have in common. */
export function alignTokens(a: readonly number[], b: readonly number[]): readonly Pair[] {
  const lengths = commonLengths(a, b);
  const pairs: Pair[] = [];
  let [i, j, doneA, doneB] = [0, 0, 0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      pairs.push(...between(doneA, i, doneB, j), { a: i, b: j });
      [i, j] = [i + 1, j + 1];
      [doneA, doneB] = [i, j];
    } else if ((lengths[i + 1]?.[j] ?? 0) >= (lengths[i]?.[j + 1] ?? 0)) i++;
    else j++;
  }
  return [...pairs, ...between(doneA, a.length, doneB, b.length)];
}
