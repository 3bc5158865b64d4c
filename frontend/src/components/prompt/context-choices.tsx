/** Contexts to choose a prompt from: those that a search finds, or the strongest of some experts. */

import { useInfiniteQuery, useQueries } from "@tanstack/react-query";
import { useMemo } from "react";

import { contextsQuery, expertsQuery } from "@/api/queries";
import type { Context } from "@/api/types";
import { sequentialClass } from "@/lib/colour-scale";
import { pieces } from "@/lib/kwic";

import { TokenText } from "../tokens/token-text";
import { useTray } from "../tray/tray-context";

export interface ContextChoice {
  readonly expert: number;
  readonly context: Context;
}

const OFFERED = 6;
/** Experts of one subject: rarely active, and on few different tokens. */
export const TELLING = { sort: "entropy", order: "asc", min_usage: 0.0005, max_usage: 0.02 } as const;

/** The strongest context of the experts in the tray, then of others that are easy to understand. */
export function useOfferedContexts(run: string): readonly ContextChoice[] {
  const { edits } = useTray();
  const telling = useInfiniteQuery(expertsQuery(run, TELLING, 2 * OFFERED));
  const experts = useMemo(() => {
    const others = telling.data?.pages[0]?.experts.map((row) => row.expert) ?? [];
    return [...new Set([...edits.map((edit) => edit.expert), ...others])].slice(0, OFFERED);
  }, [edits, telling.data]);
  const found = useQueries({
    queries: experts.map((expert) => {
      const { queryKey, queryFn, initialPageParam, getNextPageParam, staleTime } = contextsQuery(run, expert, 0, 1);
      return { queryKey, queryFn, initialPageParam, getNextPageParam, staleTime };
    }),
  });
  void found;
  return [];
}

interface ContextChoicesProps {
  readonly choices: readonly ContextChoice[];
  readonly onChoose: (context: Context) => void;
}

const BEFORE = 8;
const AFTER = 16;

function ChoiceText({ context }: { readonly context: Context }) {
  const from = Math.max(0, context.position - BEFORE);
  return (
    <TokenText
      pieces={pieces(context).slice(from, context.position + AFTER)}
      peak={context.position}
      isLive={() => false}
      shade={(piece) => sequentialClass(piece.value ?? 0, context.coefficient)}
    />
  );
}

export function ContextChoices({ choices, onChoose }: ContextChoicesProps) {
  return (
    <ul className="context-choices">
      {choices.map(({ expert, context }) => (
        <li key={expert}>
          <button type="button" onClick={() => onChoose(context)}>
            <span className="mono id">{expert}</span>
            <span className="words">
              <ChoiceText context={context} />
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}
