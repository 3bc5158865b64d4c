/** The text of one variant while it is generated; steered tokens are shaded by the change in log-probability. */

import { useMemo } from "react";

import type { Variant } from "@/api/types";
import { AlternativesTip } from "@/components/tokens/alternatives-tip";
import { TokenStrip } from "@/components/tokens/token-strip";
import { ErrorState } from "@/components/ui/states";
import { divergingClass } from "@/lib/scales/colour-scale";
import type { Piece } from "@/lib/text/kwic";

import type { Generation } from "./use-generation";

/** End of the colour scale in nats. */
const SCALE_LIMIT = 4;

interface GeneratedTextProps {
  readonly variant: Variant;
  readonly generation: Generation;
  readonly onRetry?: () => void;
}

export function GeneratedText({ variant, generation, onRetry }: GeneratedTextProps) {
  const tokens = generation[variant];
  const pieces = useMemo<readonly Piece[]>(
    () =>
      tokens.map((token, index) => ({
        index,
        id: token.id,
        // The prompt is shown elsewhere, so leading white space would only indent the text.
        text: index === 0 ? token.text.trimStart() : token.text,
        value: token.delta_log_probability,
      })),
    [tokens],
  );
  const isGenerating = generation.status === "waiting" || generation.status === "streaming";
  return (
    <div className="gen" aria-busy={isGenerating} data-stale={generation.status === "waiting" || undefined}>
      <TokenStrip
        className="gen-text"
        label={variant === "baseline" ? "Baseline text" : "Steered text"}
        pieces={pieces}
        shade={(piece) => (variant === "steered" ? divergingClass(piece.value ?? 0, SCALE_LIMIT) : "")}
        tip={(piece) => {
          const token = tokens[piece.index];
          return token === undefined ? null : <AlternativesTip token={token} />;
        }}
      />
      {isGenerating && <span className="caret" aria-hidden="true" />}
      {generation.error !== null && onRetry !== undefined && <ErrorState error={generation.error} onRetry={onRetry} />}
    </div>
  );
}
