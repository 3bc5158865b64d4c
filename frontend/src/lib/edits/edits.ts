/** Edits, written as on the command line: `12:scale:3,40:ablate`, `other-run/7:add:2` for another layer. */

export const EDIT_MODES = ["scale", "add", "set", "ablate"] as const;
export type EditMode = (typeof EDIT_MODES)[number];

export interface Edit {
  readonly expert: number;
  readonly mode: EditMode;
  /** scale: factor. add and set: multiples of the expert's 99th percentile. ablate: unused, 1. */
  readonly strength: number;
  /** The expert's run, if it is another layer's and not the steered run. */
  readonly run?: string;
}

/** Largest absolute strength that the server accepts. */
export const MAX_STRENGTH = 1000;

/** Key of an edit's expert; an expert has at most one edit. */
export function editKey({ expert, run }: Pick<Edit, "expert" | "run">): string {
  return run === undefined ? String(expert) : `${run}/${expert}`;
}

/** Strength at which an edit of this mode has no effect, or the smallest one. */
export const NEUTRAL_STRENGTH: Readonly<Record<EditMode, number>> = { scale: 1, add: 0, set: 0, ablate: 1 };

/** Initial strength per mode: visible, but weak enough that the text stays fluent. */
export const INITIAL_STRENGTH: Readonly<Record<EditMode, number>> = { scale: 4, add: 3, set: 4, ablate: 1 };

/** The default edit of an expert. Adding works on any prompt; scaling only has an effect where the expert is active. */
export function newEdit(expert: number, run?: string): Edit {
  return { expert, mode: "add", strength: INITIAL_STRENGTH.add, ...(run !== undefined && { run }) };
}

/** Strength of an edit written without one, here and on the command line. */
const DEFAULT_STRENGTH = 1;

function parseEdit(text: string): Edit | null {
  const slash = text.lastIndexOf("/");
  const run = slash === -1 ? {} : { run: text.slice(0, slash) };
  const [id = "", mode = "", strength = ""] = text.slice(slash + 1).split(":");
  const parsedMode = EDIT_MODES.find((name) => name === mode);
  if (!/^\d+$/.test(id) || parsedMode === undefined) return null;
  const value = strength === "" ? DEFAULT_STRENGTH : Number(strength);
  if (!Number.isFinite(value)) return null;
  return {
    expert: Number(id),
    mode: parsedMode,
    strength: Math.min(MAX_STRENGTH, Math.max(-MAX_STRENGTH, value)),
    ...run,
  };
}

/** Parse edits. Invalid entries are dropped, strengths clamped; the last of several edits of one expert wins. */
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
  return edit.mode === "ablate" ? `${key}:ablate` : `${key}:${edit.mode}:${edit.strength}`;
}

export function formatEdits(edits: readonly Edit[]): string {
  return edits.map(formatEdit).join(",");
}

const SIGNS: Readonly<Record<EditMode, string>> = { scale: "×", add: "+", set: "=", ablate: "" };

/** `× 4.0`, `+ 2.5`, `− 1.0`, `= 0.8`, `ablated`. */
export function describeEdit(edit: Pick<Edit, "mode" | "strength">): string {
  if (edit.mode === "ablate") return "ablated";
  const sign = edit.mode === "add" && edit.strength < 0 ? "−" : SIGNS[edit.mode];
  const size = edit.mode === "add" ? Math.abs(edit.strength) : edit.strength;
  return `${sign} ${size.toFixed(1).replace("-", "−")}`;
}
