/** Tokens of the passage as toggle buttons; pressing one restricts the search to it. */

import type { PassageToken } from "@/api/types";
import { displayText } from "@/components/tokens/token-text";
import { whitespaceName } from "@/lib/text/token-text";

interface PassageTokensProps {
  readonly tokens: readonly PassageToken[];
  readonly position: number | null;
  readonly onChoose: (position: number | null) => void;
}

export function PassageTokens({ tokens, position, onChoose }: PassageTokensProps) {
  return (
    <p className="passage-tokens mono" role="group" aria-label="Tokens of the passage">
      <span className="hint">Rank by</span>
      <button type="button" aria-pressed={position === null} onClick={() => onChoose(null)}>
        all tokens
      </button>
      <span className="hint">or one:</span>
      {tokens.map((token, i) =>
        token.start || token.text === "" ? null : (
          <button
            key={i}
            type="button"
            aria-pressed={i === position}
            aria-label={whitespaceName(token.text) ?? undefined}
            onClick={() => onChoose(i === position ? null : i)}
          >
            {displayText(token.text, "line", true)}
          </button>
        ),
      )}
    </p>
  );
}
