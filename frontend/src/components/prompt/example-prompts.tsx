/** Example prompts for a page without a prompt, taken from the run's top examples. */

import type { Context } from "@/api/types";

import { useSuggestedContexts } from "./context-search";

interface ExamplePromptsProps {
  readonly run: string;
  readonly toPrompt: (context: Context) => string;
  readonly onChoose: (prompt: string) => void;
}

const CANDIDATES = 6;
const MAX_PROMPTS = 3;
const MIN_LENGTH = 12;

export function ExamplePrompts({ run, toPrompt, onChoose }: ExamplePromptsProps) {
  const all = useSuggestedContexts(run, CANDIDATES).map(({ context }) => toPrompt(context).trim());
  const sentences = all.filter((prompt) => prompt.length >= MIN_LENGTH && !prompt.includes("\n"));
  const prompts = new Set([...sentences, ...all].slice(0, MAX_PROMPTS));
  if (prompts.size === 0) return null;
  return (
    <div className="example-prompts">
      <span className="dim">Or start from an example:</span>
      {[...prompts].map((prompt) => (
        <button key={prompt} type="button" className="btn" onClick={() => onChoose(prompt)}>
          {prompt}
        </button>
      ))}
    </div>
  );
}
