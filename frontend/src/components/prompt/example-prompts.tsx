/** Example prompts for a page without a prompt, taken from the run's top examples. */

import { useMemo } from "react";

import type { Example } from "@/api/types";

import { useSuggestedExamples } from "./example-search";

const CANDIDATES = 6;
const MAX_PROMPTS = 3;
const MIN_LENGTH = 12;

/** Example prompts from the run's top examples, whole sentences first. */
function useExamplePrompts(run: string, toPrompt: (example: Example) => string): readonly string[] {
  const examples = useSuggestedExamples(run, CANDIDATES);
  const all = examples.map(({ example }) => toPrompt(example).trim());
  const sentences = all.filter((prompt) => prompt.length >= MIN_LENGTH && !prompt.includes("\n"));
  const key = [...new Set([...sentences, ...all].slice(0, MAX_PROMPTS))].join("\u0000");
  return useMemo(() => (key === "" ? [] : key.split("\u0000")), [key]);
}

interface ExamplePromptsProps {
  readonly run: string;
  readonly toPrompt: (example: Example) => string;
  readonly onChoose: (prompt: string) => void;
}

export function ExamplePrompts({ run, toPrompt, onChoose }: ExamplePromptsProps) {
  return <Examples prompts={useExamplePrompts(run, toPrompt)} onChoose={onChoose} />;
}

interface ExamplesProps extends Pick<ExamplePromptsProps, "onChoose"> {
  readonly prompts: readonly string[];
}

export function Examples({ prompts, onChoose }: ExamplesProps) {
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
