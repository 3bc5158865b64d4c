/** What the texts say of the edits, in sentences: for the page, and for the files that Share writes. */

import type { EditPrice, SteeringFigures } from "@/api/types";
import { formatFixed, formatPlural } from "@/lib/text/format";

import { changedWords, type Control, earlyEnd, type Generation, meanKl } from "./generation";

/** The words that the edits gained, and what they lost; null without any gain. */
export function describeWords({ steered, baseline }: Generation, control: Control | null) {
  const random = control === null || control.generation.isOutdated ? [] : [control.generation.steered];
  const gained = changedWords(steered, 1, baseline, ...random);
  const lost = changedWords(baseline, -1, steered).slice(0, 1);
  if (gained.length === 0) return null;
  return { gained: gained.join(", "), lost: lost.map((word) => `, ${word} lost`).join("") };
}

/** Plus or minus two standard errors, which a single text does not have. */
const interval = (error: number | null | undefined) => (error == null ? "" : ` ± ${formatFixed(2 * error, 2)}`);

/** `× 1.2 (1.0 to 1.5)`: two standard errors of the logarithm to either side. */
function describePerplexity({ perplexity_ratio: ratio, perplexity_error: error }: SteeringFigures): string {
  const at = (sign: 1 | -1) => formatFixed(ratio * Math.exp(2 * sign * (error ?? 0)), 1);
  return `perplexity × ${formatFixed(ratio, 1)}${error === null ? "" : ` (${at(-1)} to ${at(1)})`}`;
}

/** Which divergence it is: that of side effects is on other texts. */
export const klHere = ({ steered }: Generation) =>
  `KL on ${steered.continuations.length > 1 ? "these texts" : "this text"}`;

/** How far the steered texts are from the baseline, beside the control, and how fluent they are; null without texts. */
export function describeEffect(generation: Generation, control: Control | null): string | null {
  const { figures, steered } = generation;
  const kl = figures?.kl ?? meanKl(steered);
  if (kl === null) return null;
  const other = control === null || control.generation.isOutdated ? null : control.generation.figures;
  const parts = [`${formatFixed(kl, 2)}${interval(figures?.kl_error)} nats`];
  if (other !== null) parts.push(`random expert ${formatFixed(other.kl, 2)}${interval(other.kl_error)}`);
  if (other !== null && kl <= other.kl) parts.push("no more than the random expert");
  else if (control !== null && figures?.is_small === true) parts.push("a small effect");
  const random = other === null ? "" : `, random expert × ${formatFixed(other.perplexity_ratio, 1)}`;
  const sample =
    figures === null ? "" : `; ${describePerplexity(figures)}${random}, ${formatPlural(figures.texts, "text")}`;
  return parts.join(", ") + sample + earlyEnd(generation);
}

/** Every sentence of the page about complete texts. */
export function findings(generation: Generation, control: Control | null, price: EditPrice | null): string[] {
  const [words, effect] = [describeWords(generation, control), describeEffect(generation, control)];
  const numbered = (generation.figures?.flaws ?? []).map((flaw, i) => flaw && `Steered text ${i + 1}: ${flaw}`);
  return [
    words === null ? "" : `${words.gained} gained${words.lost}.`,
    effect === null ? "" : `${klHere(generation)} ${effect}.`,
    ...numbered,
    price === null ? "" : `Side effects: ${price.figures}. ${price.verdict}`,
  ].filter((sentence) => sentence !== "");
}
