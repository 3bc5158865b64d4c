/** Passages that most language models know by heart, so that the effect is visible. */

import { Button } from "@/components/ui/button";

const KNOWN_PASSAGES = [
  "We hold these truths to be self-evident, that all men are created equal, that they are endowed by their Creator with certain unalienable Rights, that among these are Life, Liberty and the pursuit of Happiness.",
  "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and dedicated to the proposition that all men are created equal.",
];

interface ExamplePassagesProps {
  readonly onChoose: (text: string) => void;
}

export function ExamplePassages({ onChoose }: ExamplePassagesProps) {
  return (
    <div className="example-prompts">
      <span className="dim">Or start from passages that the model is likely to know by heart:</span>
      {KNOWN_PASSAGES.map((passage) => (
        <button key={passage} type="button" className="btn" onClick={() => onChoose(passage)}>
          {passage}
        </button>
      ))}
      <Button size="small" onClick={() => onChoose(KNOWN_PASSAGES.join("\n\n"))}>
        Both
      </Button>
    </div>
  );
}
