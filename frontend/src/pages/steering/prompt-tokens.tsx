/** The prompt's tokens, to choose those that the edits touch. */

import type { RoutingResponse } from "@/api/types";
import { Button } from "@/components/button";
import { visibleText } from "@/lib/token-text";

interface PromptTokensProps {
  readonly tokens: RoutingResponse["tokens"] | undefined;
  /** Indices, 0 being the start token. */
  readonly chosen: readonly number[];
  readonly onChoose: (positions: readonly number[]) => void;
}

export function PromptTokens({ tokens, chosen, onChoose }: PromptTokensProps) {
  if (tokens === undefined) return <p className="card-note">Reading the prompt …</p>;
  const toggle = (position: number) => {
    const without = chosen.filter((other) => other !== position);
    onChoose(without.length < chosen.length ? without : [...chosen, position].sort((a, b) => a - b));
  };
  const all = tokens.flatMap((token, position) => (token.start ? [] : [position]));
  return (
    <div className="prompt-tokens">
      <div role="group" aria-label="Tokens of the prompt that the edits touch">
        {tokens.map((token, position) => (
          <button
            key={position}
            type="button"
            className="tk"
            aria-pressed={chosen.includes(position)}
            onClick={() => toggle(position)}
          >
            {token.start ? "start" : visibleText(token.text)}
          </button>
        ))}
      </div>
      <p className="card-note">
        {chosen.length === 0
          ? "Click the tokens that the edits are to touch; none is chosen, so nothing is changed."
          : `${chosen.length} of ${tokens.length} tokens; the generated ones are left alone.`}
        <Button size="small" variant="ghost" onClick={() => onChoose(chosen.length === all.length ? [] : all)}>
          {chosen.length === all.length ? "None" : "All"}
        </Button>
      </p>
    </div>
  );
}
