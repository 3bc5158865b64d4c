/** What a frontier says: which run raises the loss less at each K, and what limits that comparison. */

import type { Estimate, Frontier, FrontierLine, FrontierPoint, RunSummary } from "@/api/types";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";

import { fairness } from "@/pages/evaluate/compare/facts/fairness";

/** `6, 12 and 24`. */
export function listed(values: readonly (number | string)[]): string {
  const texts = values.map(String);
  return texts.length < 2 ? texts.join("") : `${texts.slice(0, -1).join(", ")} and ${texts.at(-1) ?? ""}`;
}

export const interval = ({ low, high }: Pick<Estimate, "low" | "high">, digits = 4) =>
  `${formatFixed(low, digits)} to ${formatFixed(high, digits)}`;

const isClear = ({ low, high }: Estimate) => low > 0 || high < 0;
const distinct = (values: readonly number[]) => [...new Set(values)].sort((a, b) => a - b);

export const ksOf = (lines: readonly FrontierLine[]) =>
  distinct(lines.flatMap(({ points }) => points.map(({ k }) => k)));

export const ownLine = ({ lines }: Frontier) => lines.find(({ own }) => own);

/** How the loss increase of one line changes with K. */
function course({ name, points }: FrontierLine): string {
  const [first, last] = [points[0], points.at(-1)];
  if (first === undefined || last === undefined || first.k === last.k) return "";
  const [few, many] = [first, last].map(
    ({ loss_increase: loss }) => `${formatFixed(loss.value, 4)} (${interval(loss)})`,
  );
  return `From K = ${first.k} to ${last.k}, the loss increase of ${name} changes from ${few} to ${many} nats per token.`;
}

type Compared = FrontierPoint & { readonly difference: Estimate };

/** One sentence: the K at which one line is clearly lower than the other, and those at which neither is. */
function comparison(own: string, { name, points }: FrontierLine): string {
  const compared = points.filter((point): point is Compared => point.difference !== null);
  const lower = (sign: 1 | -1) =>
    compared.filter(({ difference }) => isClear(difference) && difference.value * sign > 0);
  const unclear = compared.filter(({ difference }) => !isClear(difference)).map(({ k }) => k);
  const clauses = [
    { winner: name, loser: own, points: lower(1), sign: 1 as const },
    { winner: own, loser: name, points: lower(-1), sign: -1 as const },
  ].flatMap(({ winner, loser, points: clear, sign }) =>
    clear.length === 0 ? [] : [`${winner} raises the loss less than ${loser}, ${listed(sizes(clear, sign))}`],
  );
  if (unclear.length > 0) {
    const pair = clauses.length === 0 ? `${own} and ${name}` : "they";
    clauses.push(`${pair} do not differ clearly at K = ${listed(unclear)}`);
  }
  return clauses.length === 0 ? "" : `${clauses.join("; ")}.`;
}

/** By how much at each K, with the interval. The sign turns the difference round for the run that is lower. */
const sizes = (points: readonly Compared[], sign: 1 | -1) =>
  points.map(({ k, difference: { value, low, high } }) => {
    const ends = sign > 0 ? { low, high } : { low: -high, high: -low };
    return `by ${formatFixed(Math.abs(value), 4)} (${interval(ends)}) nats per token at K = ${k}`;
  });

/** The verdict: the current run's line against each other line, or its own course if there is none. */
export function frontierVerdict(frontier: Frontier): string[] {
  const own = ownLine(frontier);
  if (own === undefined) return [];
  const others = frontier.lines.filter((line) => !line.own).map((line) => comparison(own.name, line));
  const clear = others.filter((text) => text !== "");
  return clear.length > 0 ? clear : [course(own)].filter((text) => text !== "");
}

/** Points of runs that were trained at another K; null if there are none. */
export function truncationNote({ lines }: Frontier): string | null {
  const points = lines.flatMap((line) => line.points);
  const truncated = points.filter(({ k, trained_k: trained }) => k < trained);
  if (truncated.length === 0) return null;
  const ks = distinct(truncated.map(({ k }) => k));
  const trained = distinct(truncated.map(({ trained_k: k }) => k));
  const without = ks.filter((k) => !points.some((point) => point.k === k && point.trained_k === k));
  const missing =
    without.length === 0
      ? ""
      : ` No run of this layer was trained at K = ${listed(without)}. Such a run usually loses less, so the curve may overstate the loss at small K.`;
  return `Hollow points, K = ${listed(ks)}: runs trained at K = ${listed(trained)} of which only the most active experts are kept.${missing}`;
}

const SHARES = [
  { key: "strict_routing_share", name: "strict routing share" },
  { key: "routing_share", name: "routing share" },
] as const;

/** Lines whose loss increase is clearly below that of this one, each with the K: `two at K = 12 and 24`. */
function lowerThan(frontier: Frontier, line: FrontierLine): readonly string[] {
  const compared = frontier.lines.filter((other) => (line.own ? !other.own : other === line));
  return compared.flatMap(({ name, points }) => {
    const ks = points
      .filter(({ difference }) => difference !== null && (line.own ? difference.low > 0 : difference.high < 0))
      .map(({ k }) => k);
    const lower = line.own ? name : ownLine(frontier)?.name;
    return ks.length === 0 || lower === undefined ? [] : [`${lower} at K = ${listed(ks)}`];
  });
}

/** What a lower share means for the comparison, if one line's share is clearly below all others'. */
function consequence(frontier: Frontier, shares: readonly ({ readonly line: FrontierLine } & Estimate)[]): string {
  const [lowest, ...others] = shares.toSorted((a, b) => a.value - b.value);
  if (lowest === undefined || others.length === 0 || others.some(({ low }) => low <= lowest.high)) return "";
  const lower = lowerThan(frontier, lowest.line);
  const despite =
    lower.length === 0
      ? ""
      : ` Its loss increase is still above that of ${lower.join(", and of ")}. Its dense path does not explain these differences.`;
  return ` The lower share lowers the loss increase of ${lowest.line.name}.${despite}`;
}

/** Whether the routing shares of the lines are equal enough to compare their losses. */
export function routingNote(frontier: Frontier): string | null {
  for (const { key, name } of SHARES) {
    const shares = frontier.lines.flatMap((line) => {
      const share = line.points.at(-1)?.[key];
      return share ? [{ line, ...share }] : [];
    });
    if (shares.length === 0) continue;
    const texts = shares.map(
      ({ line, value, low, high }) =>
        `${line.name} ${formatPercent(value, 1)} % (${formatPercent(low, 1)} to ${formatPercent(high, 1)} %)`,
    );
    const rule = "A dense path that works without routing lowers the loss increase.";
    const care = texts.length > 1 ? ` Compare losses with care where the ${name} differs: ` : ` The ${name} here: `;
    return `${rule}${care}${listed(texts)}.${consequence(frontier, shares)}`;
  }
  return null;
}

/** Which run has the lower error at each K. The stored errors are not per sequence, so they are not paired. */
export function errorNote(frontier: Frontier): string | null {
  const own = ownLine(frontier);
  const [other, ...more] = frontier.lines.filter((line) => !line.own);
  if (own === undefined || other === undefined || more.length > 0) return null;
  const pairs = own.points.flatMap((point) => {
    const twin = other.points.find(({ k }) => k === point.k);
    return twin === undefined ? [] : [{ k: point.k, isLower: point.normalized_mse.value < twin.normalized_mse.value }];
  });
  const at = (isLower: boolean) => pairs.filter((pair) => pair.isLower === isLower).map(({ k }) => k);
  const texts = [[own.name, at(true)] as const, [other.name, at(false)] as const].flatMap(([name, ks]) =>
    ks.length === 0 ? [] : [`${name} at K = ${listed(ks)}`],
  );
  return texts.length === 0 ? null : `Lower normalised MSE: ${texts.join("; ")}. Not tested in pairs.`;
}

/** Whether the current run and each other one were trained under equal conditions; each answer once. */
export function conditionsNotes({ lines }: Frontier, runs: readonly RunSummary[]): string[] {
  const summaries = (line: FrontierLine) => runs.filter(({ name }) => line.runs.includes(name));
  const [own, ...more] = lines.filter((line) => line.own).flatMap(summaries);
  if (own === undefined || more.length > 0) return [];
  const answers = lines
    .filter((line) => !line.own)
    .flatMap(summaries)
    .map((other) => ({ name: other.name, text: fairness(own, other) }));
  const [first] = answers;
  if (first === undefined) return [];
  if (answers.every(({ text }) => text === first.text)) return [first.text];
  return answers.map(({ name, text }) => `${own.name} and ${name}. ${text}`);
}

/** What the intervals cover. */
export function intervalNote({ sequences, lines }: Frontier): string {
  const seeds = Math.max(...lines.flatMap(({ points }) => points.map(({ runs }) => runs.length)));
  const cover = seeds > 1 ? "and, where there are several, seeds" : "not training seeds: each run has one";
  const several = lines.length > 1 ? " Differences are paired by sequence and not corrected for the number of K." : "";
  return `Intervals: 95 %, bootstrap over the ${formatCount(sequences)} sequences, ${cover}.${several}`;
}
