/** Contexts to choose a prompt from: those that a search finds, or the strongest of some experts. */

import { useQueries } from "@tanstack/react-query";

import { topContextsQuery } from "@/api/queries";
import type { Context } from "@/api/types";

import { useBestExperts } from "../best-experts";
import { ShadedText } from "../tokens/shaded-text";
import { useTray } from "../tray/tray-context";

export interface ContextChoice {
  readonly expert: number;
  readonly context: Context;
}

const OFFERED = 6;
/** The strongest context of the experts in the tray, then of others that are easy to understand. */
export function useOfferedContexts(run: string, count = OFFERED): readonly ContextChoice[] {
  const { edits } = useTray();
  const others = useBestExperts(run)
    .experts.slice(0, OFFERED)
    .map((row) => row.expert);
  const experts = [...new Set([...edits.map((edit) => edit.expert), ...others])].slice(0, count);
  const found = useQueries({ queries: experts.map((expert) => topContextsQuery(run, expert, 1)) });
  return experts.flatMap((expert, i) => (found[i]?.data?.contexts ?? []).map((context) => ({ expert, context })));
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
