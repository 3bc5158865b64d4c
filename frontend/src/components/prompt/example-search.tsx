/** Top examples to choose a prompt from. */

import { useQueries } from "@tanstack/react-query";

import { topExamplesQuery } from "@/api/queries";
import type { Example } from "@/api/types";
import { ShadedText } from "@/components/tokens/shaded-text";
import { useTray } from "@/components/tray/tray-context";
import { useBestExperts } from "@/hooks/use-best-experts";

export interface ExampleChoice {
  readonly expert: number;
  readonly example: Example;
}

const MAX_SUGGESTIONS = 6;
/** The top example of each expert in the tray, then of the most interpretable others. */
export function useSuggestedExamples(run: string, count = MAX_SUGGESTIONS): readonly ExampleChoice[] {
  const { edits } = useTray();
  const others = useBestExperts(run)
    .experts.slice(0, MAX_SUGGESTIONS)
    .map((row) => row.expert);
  const experts = [...new Set([...edits.map((edit) => edit.expert), ...others])].slice(0, count);
  const queries = useQueries({ queries: experts.map((expert) => topExamplesQuery(run, expert, 1)) });
  return experts.flatMap((expert, i) => (queries[i]?.data?.examples ?? []).map((example) => ({ expert, example })));
}

interface ExampleChoicesProps {
  readonly choices: readonly ExampleChoice[];
  readonly onChoose: (example: Example) => void;
}

export function ExampleChoices({ choices, onChoose }: ExampleChoicesProps) {
  return (
    <ul className="example-choices">
      {choices.map(({ expert, example }) => (
        <li key={expert}>
          <button type="button" onClick={() => onChoose(example)}>
            <span className="mono id">{expert}</span>
            <span className="words">
              <ShadedText example={example} before={8} after={16} />
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}
