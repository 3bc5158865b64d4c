/** The prompt's tokens as toggle buttons, to select those to edit. */

import type { RoutingResponse } from "@/api/types";
import { Button } from "@/components/ui/button";
import { visibleText } from "@/lib/text/token-text";

interface PromptTokensProps {
  readonly tokens: RoutingResponse["tokens"] | undefined;
  /** Token indices; 0 is the start token. */
  readonly chosen: readonly number[];
  readonly onChoose: (positions: readonly number[]) => void;
}

export function PromptTokens({ tokens, chosen, onChoose }: PromptTokensProps) {
  if (tokens === undefined) return <p className="card-note">Loading tokens…</p>;
  const toggle = (position: number) => {
    const without = chosen.filter((other) => other !== position);
    onChoose(without.length < chosen.length ? without : [...chosen, position].sort((a, b) => a - b));
  };
  const all = tokens.flatMap((token, position) => (token.start ? [] : [position]));
  return (
    <div className="prompt-tokens">
      <div role="group" aria-label="Prompt tokens to edit">
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
          ? "Click the tokens to edit. None is selected, so the edits have no effect."
          : `${chosen.length} of ${tokens.length} tokens; generated tokens are not edited.`}
        <Button size="small" variant="ghost" onClick={() => onChoose(chosen.length === all.length ? [] : all)}>
          {chosen.length === all.length ? "None" : "All"}
        </Button>
      </p>
    </div>
  );
}
