/** Escapes text for Plotly, which draws tags such as `<b>` and links in labels, tokens and names as markup. */

const ENTITIES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

/** The value with every text in it escaped, also inside lists. Numbers and other values stay as they are. */
export function escapeMarkup(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(escapeMarkup);
  return typeof value === "string" ? value.replace(/[&<>]/g, (character) => ENTITIES[character] ?? character) : value;
}

/** The fields of these names with their texts escaped; only those that the object has. */
export function escapeFields(raw: Readonly<Record<string, unknown>>, names: readonly string[]): object {
  const present = names.filter((name) => name in raw);
  return Object.fromEntries(present.map((name) => [name, escapeMarkup(raw[name])]));
}
