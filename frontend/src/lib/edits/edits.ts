/** Edits and their conditions, written as on the command line: `12:scale:3,40:ablate`, `other-run/7:add:2` for another layer,
 * `@when:12>median@first:20` for a condition. */

/** The activation exceeds `above`, or is at most `at_most`: in units of the expert's 99th percentile, or the median over
 * its active tokens. */
export interface GateTest {
  readonly expert: number;
  /** The expert's run, if it is not that of the edited expert. */
  readonly run?: string | null;
  readonly above?: number | "median" | null;
  readonly at_most?: number | "median" | null;
}

/** All parts must hold on a token, as in HTTP requests. Counts are generated tokens; null for no limit. */
export interface Condition {
  readonly gates: readonly GateTest[];
  readonly scope: "all" | "generated" | "prompt";
  readonly first: number | null;
  readonly ramp: number | null;
  readonly fade: number | null;
  readonly until: string | null;
}

export const ALWAYS: Condition = { gates: [], scope: "all", first: null, ramp: null, fade: null, until: null };
export const MAX_GATE_TESTS = 4;
/** Largest count of tokens that the server accepts. */
export const MAX_COUNTED_TOKENS = 4096;

const COUNTED = ["first", "ramp", "fade"] as const;
const CLAUSE = /@(?:until:(?<quoted>"(?:[^"\\]|\\.)*")|until:(?<rest>.*)|(?<word>[^@]*))/gsu;
const GATE_TEST = /^(?:(?<run>.+)\/)?(?<expert>\d+)(?<sign>>|<=)(?<level>.+)$/u;

export function parseGateTest(text: string): GateTest | null {
  const { run, expert, sign, level } = GATE_TEST.exec(text)?.groups ?? {};
  const value = level === "median" ? level : Number(level);
  if (expert === undefined || Number.isNaN(value)) return null;
  return { expert: Number(expert), ...(run !== undefined && { run }), [sign === ">" ? "above" : "at_most"]: value };
}

type Groups = Readonly<Partial<Record<string, string>>>;

function parseClause({ quoted, rest, word = "" }: Groups): Partial<Condition> | GateTest | null {
  if (quoted !== undefined) return { until: JSON.parse(quoted) as string };
  if (rest !== undefined) return { until: rest };
  const [name = "", value = ""] = word.split(/:(.*)/s);
  if (name === "when") return parseGateTest(value);
  if (name === "prompt" || name === "generated") return { scope: name };
  const counted = COUNTED.find((known) => known === name);
  const count = Number(value);
  return counted !== undefined && Number.isInteger(count) && count > 0 ? { [counted]: count } : null;
}

/** Parse clauses such as `@prompt@when:3>0`. Null if a clause is invalid, since the edit would mean something else. */
export function parseCondition(text: string): Condition | null {
  let condition = ALWAYS;
  for (const match of text.matchAll(CLAUSE)) {
    const part = parseClause(match.groups ?? {});
    if (part === null) return null;
    condition = "expert" in part ? { ...condition, gates: [...condition.gates, part] } : { ...condition, ...part };
  }
  return condition;
}

const isAbove = ({ above }: GateTest) => above != null;
const levelOf = ({ above, at_most }: GateTest) => above ?? at_most ?? 0;

const formatGateTest = (test: GateTest) =>
  `${test.run == null ? "" : `${test.run}/`}${test.expert}${isAbove(test) ? ">" : "<="}${levelOf(test)}`;

/** Inverse of `parseCondition`; empty for `ALWAYS`. */
export function formatCondition(condition: Condition): string {
  const clauses = [
    ...condition.gates.map((test) => `when:${formatGateTest(test)}`),
    ...(condition.scope === "all" ? [] : [condition.scope]),
    ...COUNTED.flatMap((name) => (condition[name] === null ? [] : [`${name}:${condition[name]}`])),
    ...(condition.until === null ? [] : [`until:${JSON.stringify(condition.until)}`]),
  ];
  return clauses.map((part) => `@${part}`).join("");
}

const SCOPES = { all: [], generated: ["in the answer"], prompt: ["in the prompt"] } as const;

/** `expert 12 is above its median`. */
export function describeGateTest(test: GateTest): string {
  const name = `expert ${test.run == null ? "" : `${test.run}/`}${test.expert}`;
  const level = levelOf(test);
  if (level === 0) return `${name} is ${isAbove(test) ? "active" : "inactive"}`;
  return `${name} is ${isAbove(test) ? "above" : "at most"} ${level === "median" ? "its median" : `${level} × p99`}`;
}

/** `in the answer, first 20 tokens, when expert 12 is above its median`; `always` without a condition. */
export function describeCondition(condition: Condition): string {
  const { gates, scope, first, ramp, fade, until } = condition;
  const parts = [
    ...SCOPES[scope],
    ...(first === null ? [] : [`first ${first} ${first === 1 ? "token" : "tokens"}`]),
    ...(ramp === null ? [] : [`growing over ${ramp}`]),
    ...(fade === null ? [] : [`fading over ${fade}`]),
    ...(until === null ? [] : [`until ${JSON.stringify(until)}`]),
    ...(gates.length === 0 ? [] : [`when ${gates.map(describeGateTest).join(" and ")}`]),
  ];
  return parts.length === 0 ? "none" : parts.join(", ");
}

export const EDIT_MODES = ["scale", "add", "set", "ablate"] as const;
export type EditMode = (typeof EDIT_MODES)[number];

export interface Edit {
  readonly expert: number;
  readonly mode: EditMode;
  /** scale: factor. add and set: multiples of the expert's 99th percentile. ablate: unused, 1. */
  readonly strength: number;
  /** The expert's run, if it is another layer's and not the steered run. */
  readonly run?: string;
  /** Tokens on which the edit applies; by default all. */
  readonly when?: Condition;
}

/** An edit whose strength matters. */
export type StrengthEdit = Edit & { readonly mode: Exclude<EditMode, "ablate"> };
export const hasStrength = (edit: Edit): edit is StrengthEdit => edit.mode !== "ablate";

/** Largest absolute strength that the server accepts. */
export const MAX_STRENGTH = 1000;

/** Key of an edit's expert; an expert has at most one edit. */
export function editKey({ expert, run }: Pick<Edit, "expert" | "run">): string {
  return run === undefined ? String(expert) : `${run}/${expert}`;
}

/** Strength at which an edit of this mode has no effect, or the smallest one. */
export const NEUTRAL_STRENGTH: Readonly<Record<EditMode, number>> = { scale: 1, add: 0, set: 0, ablate: 1 };

/** Initial strength per mode. At one unit of p99, most experts hardly change a text; at two, KL is four times as large. */
export const INITIAL_STRENGTH: Readonly<Record<EditMode, number>> = { scale: 4, add: 2, set: 2, ablate: 1 };

/** The default edit of an expert. Adding works on any prompt; scaling only has an effect where the expert is active. */
export function newEdit(expert: number, run?: string, strength: number = INITIAL_STRENGTH.add): Edit {
  return { expert, mode: "add", strength, ...(run !== undefined && { run }) };
}

/** Strength of an edit written without one, here and on the command line. */
const DEFAULT_STRENGTH = 1;

/** The edit with a condition, which is left out if it always holds. */
export function withCondition({ expert, mode, strength, run }: Edit, when: Condition): Edit {
  const isAlways = formatCondition(when) === "";
  return { expert, mode, strength, ...(run !== undefined && { run }), ...(!isAlways && { when }) };
}

export function toHttpEdit({ when, ...edit }: Edit) {
  return { ...edit, ...(when !== undefined && { when: { ...when, gates: [...when.gates] } }) };
}

function parseEdit(text: string): Edit | null {
  const [head = "", clauses = ""] = text.split(/(?=@)(.*)/s);
  const slash = head.lastIndexOf("/");
  const run = slash === -1 ? {} : { run: head.slice(0, slash) };
  const [id = "", mode = "", strength = ""] = head.slice(slash + 1).split(":");
  const condition = parseCondition(clauses);
  const parsedMode = EDIT_MODES.find((name) => name === mode);
  if (!/^\d+$/.test(id) || parsedMode === undefined) return null;
  const value = strength === "" ? DEFAULT_STRENGTH : Number(strength);
  if (!Number.isFinite(value) || condition === null) return null;
  const clamped = Math.min(MAX_STRENGTH, Math.max(-MAX_STRENGTH, value));
  return withCondition({ expert: Number(id), mode: parsedMode, strength: clamped, ...run }, condition);
}

/** A comma inside quotes belongs to a stop text. */
const entries = (text: string): readonly string[] => text.match(/(?:"(?:[^"\\]|\\.)*"|[^,"])+/gs) ?? [];

/** Parse edits. Invalid entries are dropped, strengths clamped; the last of several edits of one expert wins. */
export function parseEdits(text: string): readonly Edit[] {
  const edits = entries(text).flatMap((entry) => parseEdit(entry) ?? []);
  return [...new Map(edits.map((edit) => [editKey(edit), edit])).values()];
}

/** The entries that `parseEdits` drops. */
export const unreadEdits = (text: string): readonly string[] =>
  entries(text).filter((entry) => parseEdit(entry) === null);

export function formatEdit(edit: Edit): string {
  const change = edit.mode === "ablate" ? edit.mode : `${edit.mode}:${edit.strength}`;
  return `${editKey(edit)}:${change}${formatCondition(edit.when ?? ALWAYS)}`;
}

export function formatEdits(edits: readonly Edit[]): string {
  return edits.map(formatEdit).join(",");
}

export const EDIT_SIGNS: Readonly<Record<EditMode, string>> = { scale: "×", add: "+", set: "=", ablate: "" };

/** Number of decimals of the strength, at least one. */
export function strengthDigits(strength: number): number {
  const decimals = String(strength).split(".")[1]?.length ?? 0;
  return Math.min(3, Math.max(1, decimals));
}

/** `× 4.0`, `+2.5`, `+1.75`, `−1.0`, `= 0.8`, `ablated`. */
export function describeEdit(edit: Pick<Edit, "mode" | "strength">): string {
  if (edit.mode === "ablate") return "ablated";
  const sign = edit.mode === "add" && edit.strength < 0 ? "−" : EDIT_SIGNS[edit.mode];
  const size = edit.mode === "add" ? Math.abs(edit.strength) : edit.strength;
  const gap = edit.mode === "add" ? "" : " ";
  return `${sign}${gap}${size.toFixed(strengthDigits(size)).replace("-", "−")}`;
}
