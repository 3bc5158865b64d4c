/** Chat turns in an address: `[["user","Hello"],…]`. */

import type { Turn } from "@/api/types";
import type { Param } from "@/url-state";

export const ROLES = ["system", "user", "assistant"] as const;
const NONE: readonly Turn[] = [];

function turnOf(value: unknown): readonly Turn[] {
  if (!Array.isArray(value) || typeof value[1] !== "string") return NONE;
  const role = ROLES.find((known) => known === value[0]);
  return role === undefined ? NONE : [{ role, text: value[1] }];
}

export const turnsParam: Param<readonly Turn[]> = {
  read: (text) => {
    try {
      const found: unknown = JSON.parse(text ?? "[]");
      return Array.isArray(found) ? found.flatMap(turnOf) : NONE;
    } catch {
      return NONE;
    }
  },
  write: (turns) => (turns.length === 0 ? null : JSON.stringify(turns.map(({ role, text }) => [role, text]))),
};
