/** Every key that does something, for the key handler and for the dialog that lists them. */

export const SHORTCUTS = {
  search: { key: "/", what: "Search labels and contexts", where: "Everywhere" },
  steer: { key: "t", what: "Steer with the tray", where: "Everywhere" },
  help: { key: "?", what: "Show these shortcuts", where: "Everywhere" },
  release: { key: "Escape", what: "Release the newest lock, close what is open", where: "Everywhere" },
  previous: { key: "j", what: "Previous expert", where: "Expert" },
  next: { key: "k", what: "Next expert", where: "Expert" },
  random: { key: "r", what: "An expert at random", where: "Experts, Expert, Home" },
  tray: { key: "a", what: "Add to the tray, or take out", where: "Expert, Home" },
  label: { key: "l", what: "Edit the label", where: "Expert" },
  note: { key: "n", what: "Edit the note", where: "Expert" },
  filter: { key: "f", what: "Add a filter", where: "Experts" },
  prompt: { key: "e", what: "Edit the prompt", where: "Routing, Circuits, Steering, Home" },
} as const;

export type ShortcutId = keyof typeof SHORTCUTS;

const NAMES: Readonly<Record<string, string>> = { Escape: "Esc" };

/** How a key is printed on its cap. */
export function keyCap(id: ShortcutId): string {
  const key = SHORTCUTS[id].key;
  return NAMES[key] ?? key.toUpperCase();
}

/** The shortcut that a key press means; null with a modifier other than Shift, which `?` needs. */
export function shortcutOf(event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "altKey">): ShortcutId | null {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const found = Object.entries(SHORTCUTS).find(([, shortcut]) => shortcut.key === key);
  return found === undefined ? null : (found[0] as ShortcutId);
}
