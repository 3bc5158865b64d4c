/** Top examples to choose a prompt from. */

import { useQueries } from "@tanstack/react-query";

import { topExamplesQuery } from "@/api/queries";
import type { Context } from "@/api/types";
import { ShadedText } from "@/components/tokens/shaded-text";
import { useTray } from "@/components/tray/tray-context";
import { useBestExperts } from "@/hooks/use-best-experts";

export interface ContextChoice {
  readonly expert: number;
  readonly context: Context;
}

const MAX_SUGGESTIONS = 6;
/** The top example of each expert in the tray, then of the most interpretable others. */
export function useSuggestedContexts(run: string, count = MAX_SUGGESTIONS): readonly ContextChoice[] {
  const { edits } = useTray();
  const others = useBestExperts(run)
    .experts.slice(0, MAX_SUGGESTIONS)
    .map((row) => row.expert);
  const experts = [...new Set([...edits.map((edit) => edit.expert), ...others])].slice(0, count);
  const queries = useQueries({ queries: experts.map((expert) => topExamplesQuery(run, expert, 1)) });
  return experts.flatMap((expert, i) => (queries[i]?.data?.examples ?? []).map((context) => ({ expert, context })));
}

interface ContextChoicesProps {
  readonly choices: readonly ContextChoice[];
  readonly onChoose: (context: Context) => void;
}

export function ContextChoices({ choices, onChoose }: ContextChoicesProps) {
  return (
    <ul className="context-choices">
      {choices.map(({ expert, context }) => (
        <li key={expert}>
          <button type="button" onClick={() => onChoose(context)}>
            <span className="mono id">{expert}</span>
            <span className="words">
              <ShadedText context={context} before={8} after={16} />
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}
