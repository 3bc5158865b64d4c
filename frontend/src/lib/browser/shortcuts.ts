/** All keyboard shortcuts, for the key handler and the help dialog. */

export const SHORTCUTS = {
  search: { key: "/", what: "Search experts, pages and runs", where: "Everywhere" },
  steer: { key: "t", what: "Open Steer with the tray", where: "Everywhere" },
  present: { key: "p", what: "Presentation: full screen, everything at 150 %", where: "Everywhere" },
  help: { key: "?", what: "Show keyboard shortcuts", where: "Everywhere" },
  release: { key: "Escape", what: "Release the newest lock, or close the open dialog", where: "Everywhere" },
  previous: { key: "k", what: "Previous expert", where: "Expert" },
  next: { key: "j", what: "Next expert", where: "Expert" },
  random: { key: "r", what: "Random expert", where: "Experts, Expert, Home" },
  surprise: { key: "s", what: "Surprise me with a steerable expert", where: "Experts" },
  tray: { key: "a", what: "Add to or remove from the tray", where: "Expert, Home" },
  label: { key: "l", what: "Edit label", where: "Expert" },
  note: { key: "n", what: "Edit note", where: "Expert" },
  filter: { key: "f", what: "Add filter", where: "Experts" },
  prompt: { key: "e", what: "Edit prompt", where: "Prompt, Steer, Home" },
} as const;

export type ShortcutId = keyof typeof SHORTCUTS;

const NAMES: Readonly<Record<string, string>> = { Escape: "Esc" };

/** The label of a key cap. */
export function keyCap(id: ShortcutId): string {
  const key = SHORTCUTS[id].key;
  return NAMES[key] ?? key.toUpperCase();
}

/** The shortcut of a key press. Modifiers other than Shift (needed for `?`) disable shortcuts. */
export function shortcutOf(event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "altKey">): ShortcutId | null {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const match = Object.entries(SHORTCUTS).find(([, shortcut]) => shortcut.key === key);
  return match === undefined ? null : (match[0] as ShortcutId);
}
