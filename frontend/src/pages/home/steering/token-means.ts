/** Means over the tokens of a generated text. */

import type { TokenEvent, Variant } from "@/api/types";

type Token = Pick<TokenEvent, "probability" | "delta_log_probability">;

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Mean change of the tokens' log-probability by the edit, in nats. */
export function meanChange(tokens: readonly Token[]): number {
  return mean(tokens.map((token) => token.delta_log_probability));
}

/** Perplexity of a text under the model without the edit. `probability` is that under the text's own variant. */
export function unsteeredPerplexity(tokens: readonly Token[], variant: Variant): number {
  const own = mean(tokens.map((token) => Math.log(token.probability)));
  return Math.exp(variant === "steered" ? meanChange(tokens) - own : -own);
}
