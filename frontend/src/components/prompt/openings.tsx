/** Texts to start with, for a page that has none yet: real ones, out of the run's contexts. */

import type { Context } from "@/api/types";

import { useOfferedContexts } from "./context-choices";

interface OpeningsProps {
  readonly run: string;
  readonly cut: (context: Context) => string;
  readonly onChoose: (prompt: string) => void;
}

const COUNT = 3;

export function Openings({ run, cut, onChoose }: OpeningsProps) {
  const prompts = new Set(useOfferedContexts(run, COUNT).map(({ context }) => cut(context)));
  if (prompts.size === 0) return null;
  return (
    <div className="openings">
      <span className="dim">Or start with one of these, out of the run’s contexts:</span>
      {[...prompts].map((prompt) => (
        <button key={prompt} type="button" className="btn" onClick={() => onChoose(prompt)}>
          {prompt}
        </button>
      ))}
    </div>
  );
}
