/** Chat turns as a URL parameter: `[["user","Hello"],…]`. */

import type { Turn } from "@/api/types";
import type { Param } from "@/hooks/use-url-state";

export const ROLES = ["system", "user", "assistant"] as const;
const NONE: readonly Turn[] = [];

function parseTurn(value: unknown): readonly Turn[] {
  if (!Array.isArray(value) || typeof value[1] !== "string") return NONE;
  const role = ROLES.find((known) => known === value[0]);
  return role === undefined ? NONE : [{ role, text: value[1] }];
}

export const turnsParam: Param<readonly Turn[]> = {
  read: (text) => {
    try {
      const parsed: unknown = JSON.parse(text ?? "[]");
      return Array.isArray(parsed) ? parsed.flatMap(parseTurn) : NONE;
    } catch {
      return NONE;
    }
  },
  write: (turns) => (turns.length === 0 ? null : JSON.stringify(turns.map(({ role, text }) => [role, text]))),
};
