/** Chat turns as a URL parameter: `[["user","Hello"],["assistant","steered reply","original reply"],…]`. */

import type { Turn } from "@/api/types";
import type { Param } from "@/hooks/use-url-state";

const ROLES = ["system", "user", "assistant"] as const;
const NONE: readonly ChatTurn[] = [];

/** A turn of both chats. `original`: the reply of the original model, where it differs from the steered one. */
export type ChatTurn = Turn & { readonly original?: string };

/** The turns of the steered chat. */
export const steeredTurns = (turns: readonly ChatTurn[]): Turn[] => turns.map(({ role, text }) => ({ role, text }));

/** The turns of the chat with the original model. */
export const originalTurns = (turns: readonly ChatTurn[]): Turn[] =>
  turns.map(({ role, text, original = text }) => ({ role, text: original }));

/** Whether the two chats have different histories. */
export const haveDiverged = (turns: readonly ChatTurn[]): boolean =>
  turns.some(({ original }) => original !== undefined);

function parseTurn(value: unknown): readonly ChatTurn[] {
  if (!Array.isArray(value) || typeof value[1] !== "string") return NONE;
  const role = ROLES.find((known) => known === value[0]);
  if (role === undefined) return NONE;
  return [{ role, text: value[1], ...(typeof value[2] === "string" && { original: value[2] }) }];
}

export const turnsParam: Param<readonly ChatTurn[]> = {
  read: (text) => {
    try {
      const parsed: unknown = JSON.parse(text ?? "[]");
      return Array.isArray(parsed) ? parsed.flatMap(parseTurn) : NONE;
    } catch {
      return NONE;
    }
  },
  write: (turns) =>
    turns.length === 0
      ? null
      : JSON.stringify(
          turns.map(({ role, text, original }) => (original === undefined ? [role, text] : [role, text, original])),
        ),
};
