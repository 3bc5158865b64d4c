/** Example prompts for a page without a prompt, taken from the run's top examples. */

import type { Context } from "@/api/types";

import { useExamplePrompts } from "./use-example-prompts";

interface ExamplePromptsProps {
  readonly run: string;
  readonly toPrompt: (context: Context) => string;
  readonly onChoose: (prompt: string) => void;
}

export function ExamplePrompts({ run, toPrompt, onChoose }: ExamplePromptsProps) {
  const prompts = useExamplePrompts(run, toPrompt);
  if (prompts.length === 0) return null;
  return (
    <div className="example-prompts">
      <span className="dim">Or start from an example:</span>
      {prompts.map((prompt) => (
        <button key={prompt} type="button" className="btn" onClick={() => onChoose(prompt)}>
          {prompt}
        </button>
      ))}
    </div>
  );
}
