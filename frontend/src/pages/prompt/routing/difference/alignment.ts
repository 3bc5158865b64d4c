/** Token alignment of two texts: equal, replaced, inserted and deleted tokens. */

/** Token indices in the two texts; null for no counterpart. */
export interface Pair {
  readonly a: number | null;
  readonly b: number | null;
}

/** lengths[i][j]: length of the longest common subsequence of `a` from i and `b` from j. */
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

/** Pair the tokens between two matches one by one; the rest of the longer side has no counterpart. */
function pairUnmatched(fromA: number, toA: number, fromB: number, toB: number): readonly Pair[] {
  const count = Math.max(toA - fromA, toB - fromB);
  return Array.from({ length: count }, (_, i) => ({
    a: fromA + i < toA ? fromA + i : null,
    b: fromB + i < toB ? fromB + i : null,
  }));
}

/** Pairs in the order of both texts, by their longest common subsequence. */
export function alignTokens(a: readonly number[], b: readonly number[]): readonly Pair[] {
  const lengths = commonLengths(a, b);
  const pairs: Pair[] = [];
  let [i, j, doneA, doneB] = [0, 0, 0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      pairs.push(...pairUnmatched(doneA, i, doneB, j), { a: i, b: j });
      [i, j] = [i + 1, j + 1];
      [doneA, doneB] = [i, j];
    } else if ((lengths[i + 1]?.[j] ?? 0) >= (lengths[i]?.[j + 1] ?? 0)) i++;
    else j++;
  }
  return [...pairs, ...pairUnmatched(doneA, a.length, doneB, b.length)];
}
