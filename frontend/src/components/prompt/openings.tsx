/** Texts to start with, for a page that has none yet: real ones, out of the run's contexts. */

import type { Context } from "@/api/types";

import { useOfferedContexts } from "./context-choices";

interface OpeningsProps {
  readonly run: string;
  readonly cut: (context: Context) => string;
  readonly onChoose: (prompt: string) => void;
}

const OFFERED = 6;
const SHOWN = 3;
const SHORTEST = 12;

export function Openings({ run, cut, onChoose }: OpeningsProps) {
  const all = useOfferedContexts(run, OFFERED).map(({ context }) => cut(context).trim());
  const sentences = all.filter((prompt) => prompt.length >= SHORTEST && !prompt.includes("\n"));
  const prompts = new Set([...sentences, ...all].slice(0, SHOWN));
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
