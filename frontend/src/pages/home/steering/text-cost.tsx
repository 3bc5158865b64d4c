/** Effect and cost of an edit on one text: how much likelier its tokens became, and its perplexity without the edit. */

import type { Variant } from "@/api/types";
import { Term } from "@/components/terms/term";
import { formatFixed, formatSigned } from "@/lib/text/format";

import { meanChange, unsteeredPerplexity } from "./token-means";
import type { Generation } from "./use-generation";

interface TextCostProps {
  readonly variant: Variant;
  readonly generation: Generation;
}

/** Takes its place from the start, so that nothing moves when the text is complete. */
export function TextCost({ variant, generation }: TextCostProps) {
  const tokens = generation[variant];
  if (generation.status !== "done" || tokens.length === 0) return <p className="text-cost">&nbsp;</p>;
  const perplexity = unsteeredPerplexity(tokens, variant);
  const ratio = perplexity / unsteeredPerplexity(generation.baseline, "baseline");
  return (
    <p className="text-cost">
      <Term id="perplexity_ratio">Perplexity</Term> of these {tokens.length} tokens without the edit:{" "}
      {formatFixed(perplexity, 1)}
      {variant === "steered" && (
        <>
          {" "}
          (× {formatFixed(ratio, 1)}). The edit changes their log-probability by {formatSigned(meanChange(tokens))} nats
          on average.
        </>
      )}
    </p>
  );
}
