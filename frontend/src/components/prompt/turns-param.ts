/**
 * Chat turns as a URL parameter: `[["user","Hello"],["assistant","steered reply","original reply"],…]`. A long chat stays
 * in this browser, and the URL has its key.
 */

import type { Turn } from "@/api/types";
import type { Param } from "@/hooks/use-url-state";

const ROLES = ["system", "user", "assistant"] as const;
const NONE: readonly ChatTurn[] = [];
/** Characters of a chat that fit into a URL. */
const LONGEST_IN_URL = 160;
const STORAGE_KEY = "mxd-chats";
const MOST_CHATS = 50;

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

/** Chats of this tab. */
const kept = new Map<string, string>();

/** Chats of this browser by key, the latest last. */
function storedChats(): Record<string, string> {
  try {
    return JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "{}") as Record<string, string>;
  } catch {
    return {};
  }
}

/** FNV-1a over 64 bits. Equal chats have equal keys. */
function chatKey(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text))
    hash = ((hash ^ BigInt(byte)) * 0x100000001b3n) & 0xffffffffffffffffn;
  return hash.toString(36);
}

function keepChat(text: string): string {
  const key = chatKey(text);
  if (kept.has(key)) return key;
  kept.set(key, text);
  const others = Object.entries(storedChats()).filter(([other]) => other !== key);
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(Object.fromEntries([...others, [key, text]].slice(-MOST_CHATS))));
  } catch {
    // A browser without storage has the chat in this tab.
  }
  return key;
}

/** Whether the URL names a chat that this browser does not have. */
export const isUnknownChat = (text: string | null): boolean =>
  text !== null && !text.startsWith("[") && turnsParam.read(text).length === 0;

function parseTurn(value: unknown): readonly ChatTurn[] {
  if (!Array.isArray(value) || typeof value[1] !== "string") return NONE;
  const role = ROLES.find((known) => known === value[0]);
  if (role === undefined) return NONE;
  return [{ role, text: value[1], ...(typeof value[2] === "string" && { original: value[2] }) }];
}

export const turnsParam: Param<readonly ChatTurn[]> = {
  read: (text) => {
    if (text === null) return NONE;
    try {
      const parsed: unknown = JSON.parse(text.startsWith("[") ? text : (kept.get(text) ?? storedChats()[text] ?? "[]"));
      return Array.isArray(parsed) ? parsed.flatMap(parseTurn) : NONE;
    } catch {
      return NONE;
    }
  },
  write: (turns) => {
    if (turns.length === 0) return null;
    const text = JSON.stringify(
      turns.map(({ role, text: said, original }) => [role, said, ...(original === undefined ? [] : [original])]),
    );
    return text.length <= LONGEST_IN_URL ? text : keepChat(text);
  },
};
