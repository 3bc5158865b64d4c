/** Edits to the gate, written as on the command line: `12:scale:3,40:off`, `other-run/7:add:2` for another layer. */

export const EDIT_MODES = ["scale", "add", "set", "off"] as const;
export type EditMode = (typeof EDIT_MODES)[number];

export interface Edit {
  readonly expert: number;
  readonly mode: EditMode;
  /** scale: factor. add and set: in 99th percentiles of the expert. off: unused, 1. */
  readonly strength: number;
  /** The run whose expert it is, where it is not the one that is steered: of another layer. */
  readonly run?: string;
}

/** As far as the server takes a strength, either way. */
export const STRONGEST = 1000;

/** Which expert it is about: at most one edit of each. */
export function editKey({ expert, run }: Pick<Edit, "expert" | "run">): string {
  return run === undefined ? String(expert) : `${run}/${expert}`;
}

/** Where an edit of this mode changes nothing, or as little as it can. */
export const NEUTRAL_STRENGTH: Readonly<Record<EditMode, number>> = { scale: 1, add: 0, set: 0, off: 1 };

/** What an edit starts from in each mode: strong enough to be seen, weak enough that the text stays a text. */
export const FIRST_STRENGTH: Readonly<Record<EditMode, number>> = { scale: 4, add: 3, set: 4, off: 1 };

/** The edit that an expert comes with: adding shows on any prompt, scaling only where it is active already. */
export function newEdit(expert: number, run?: string): Edit {
  return { expert, mode: "add", strength: FIRST_STRENGTH.add, ...(run !== undefined && { run }) };
}

/** What an edit written without a strength means, here and on the command line. */
const UNWRITTEN_STRENGTH = 1;

function parseEdit(text: string): Edit | null {
  const slash = text.lastIndexOf("/");
  const run = slash === -1 ? {} : { run: text.slice(0, slash) };
  const [id = "", mode = "", strength = ""] = text.slice(slash + 1).split(":");
  const known = EDIT_MODES.find((name) => name === mode);
  if (!/^\d+$/.test(id) || known === undefined) return null;
  const value = strength === "" ? UNWRITTEN_STRENGTH : Number(strength);
  if (!Number.isFinite(value)) return null;
  return { expert: Number(id), mode: known, strength: Math.min(STRONGEST, Math.max(-STRONGEST, value)), ...run };
}

/** Unreadable entries are dropped, strengths kept within what the server takes; of several for one expert, the last
 *  stands. */
export function parseEdits(text: string): readonly Edit[] {
  const edits = new Map<string, Edit>();
  for (const entry of text.split(",")) {
    const edit = parseEdit(entry);
    if (edit !== null) edits.set(editKey(edit), edit);
  }
  return [...edits.values()];
}

export function formatEdit(edit: Edit): string {
  const key = editKey(edit);
  return edit.mode === "off" ? `${key}:off` : `${key}:${edit.mode}:${edit.strength}`;
}

export function formatEdits(edits: readonly Edit[]): string {
  return edits.map(formatEdit).join(",");
}

const SIGNS: Readonly<Record<EditMode, string>> = { scale: "×", add: "+", set: "=", off: "" };

/** `× 4.0`, `+ 2.5`, `− 1.0`, `= 0.8`, `off`. */
export function describeEdit(edit: Pick<Edit, "mode" | "strength">): string {
  if (edit.mode === "off") return "off";
  const sign = edit.mode === "add" && edit.strength < 0 ? "−" : SIGNS[edit.mode];
  const size = edit.mode === "add" ? Math.abs(edit.strength) : edit.strength;
  return `${sign} ${size.toFixed(1).replace("-", "−")}`;
}
