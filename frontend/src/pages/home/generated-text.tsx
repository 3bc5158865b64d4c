/** One arm's text as it comes, each steered token shaded by how much likelier the edit made it. */

import { useMemo } from "react";

import type { Arm } from "@/api/types";
import { ErrorState } from "@/components/states";
import { AlternativesTip } from "@/components/tokens/alternatives-tip";
import { TokenStrip } from "@/components/tokens/token-strip";
import { divergingClass } from "@/lib/colour-scale";
import type { Piece } from "@/lib/kwic";

import type { Generation } from "./use-generation";

/** Nats at which the scale ends. */
const LIMIT = 4;

interface GeneratedTextProps {
  readonly arm: Arm;
  readonly generation: Generation;
  readonly onRetry?: () => void;
}

export function GeneratedText({ arm, generation, onRetry }: GeneratedTextProps) {
  const tokens = generation[arm];
  const pieces = useMemo<readonly Piece[]>(
    () =>
      tokens.map((token, index) => ({
        index,
        id: token.id,
        // The prompt stands elsewhere: what separates it from the text would only indent it.
        text: index === 0 ? token.text.trimStart() : token.text,
        value: token.delta_log_probability,
      })),
    [tokens],
  );
  const isBusy = generation.status === "waiting" || generation.status === "streaming";
  return (
    <div className="gen" aria-busy={isBusy} data-stale={generation.status === "waiting" || undefined}>
      <TokenStrip
        className="gen-text"
        label={arm === "default" ? "Text by default" : "Steered text"}
        pieces={pieces}
        shade={(piece) => (arm === "steered" ? divergingClass(piece.value ?? 0, LIMIT) : "")}
        tip={(piece) => {
          const token = tokens[piece.index];
          return token === undefined ? null : <AlternativesTip token={token} />;
        }}
      />
      {isBusy && <span className="caret" aria-hidden="true" />}
      {generation.error !== null && onRetry !== undefined && <ErrorState error={generation.error} onRetry={onRetry} />}
    </div>
  );
}
