/** The tokens of a passage: pressing one looks at it alone, pressing it again at the whole passage. */

import type { PassageToken } from "@/api/types";
import { drawnText } from "@/components/tokens/token-text";
import { blankName } from "@/lib/token-text";

interface PassageTokensProps {
  readonly tokens: readonly PassageToken[];
  readonly position: number | null;
  readonly onChoose: (position: number | null) => void;
}

export function PassageTokens({ tokens, position, onChoose }: PassageTokensProps) {
  return (
    <p className="passage-tokens mono" role="group" aria-label="Tokens of the passage">
      {tokens.map((token, i) =>
        token.start || token.text === "" ? null : (
          <button
            key={i}
            type="button"
            aria-pressed={i === position}
            aria-label={blankName(token.text) ?? undefined}
            onClick={() => onChoose(i === position ? null : i)}
          >
            {drawnText(token.text, "line", true)}
          </button>
        ),
      )}
    </p>
  );
}
