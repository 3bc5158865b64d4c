/** Conditions of edits, written as on the command line: `@when:12>median@first:20`. */

export interface GateTest {
  readonly expert: number;
  /** The expert's run, if it is not that of the edited expert. */
  readonly run?: string;
  /** `>`: the activation exceeds the level; `<=`: it does not. */
  readonly sign: ">" | "<=";
  /** Activation in units of the expert's 99th percentile, or the median over its active tokens. */
  readonly level: number | "median";
}

/** All parts must hold on a token. Counts are generated tokens; null for no limit. */
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
  return { expert: Number(expert), sign: sign === ">" ? ">" : "<=", level: value, ...(run !== undefined && { run }) };
}

function parseClause({
  quoted,
  rest,
  word = "",
}: Readonly<Partial<Record<string, string>>>): Partial<Condition> | GateTest | null {
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
    condition = "sign" in part ? { ...condition, gates: [...condition.gates, part] } : { ...condition, ...part };
  }
  return condition;
}

function formatGateTest({ run, expert, sign, level }: GateTest): string {
  return `${run === undefined ? "" : `${run}/`}${expert}${sign}${level}`;
}

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
export function describeGateTest({ run, expert, sign, level }: GateTest): string {
  const name = `expert ${run === undefined ? "" : `${run}/`}${expert}`;
  if (level === 0) return `${name} is ${sign === ">" ? "active" : "inactive"}`;
  const value = level === "median" ? "its median" : `${level} × p99`;
  return `${name} is ${sign === ">" ? "above" : "at most"} ${value}`;
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

/** The condition in HTTP requests and saved sessions. */
interface HttpCondition {
  readonly gates?: readonly {
    readonly expert: number;
    readonly run?: string | null;
    readonly above?: number | "median" | null;
    readonly at_most?: number | "median" | null;
  }[];
  readonly scope?: Condition["scope"];
  readonly first?: number | null;
  readonly ramp?: number | null;
  readonly fade?: number | null;
  readonly until?: string | null;
}

export function readHttpCondition({ gates = [], ...others }: HttpCondition): Condition {
  const tests = gates.map(({ expert, run, above, at_most: upper }): GateTest => {
    const level = above == null ? (["<=", upper ?? 0] as const) : ([">", above] as const);
    return { expert, sign: level[0], level: level[1], ...(run != null && { run }) };
  });
  return { ...ALWAYS, ...others, gates: tests };
}

export function toHttpCondition({ gates, ...others }: Condition) {
  return {
    ...others,
    gates: gates.map(({ sign, level, ...test }) => ({ ...test, [sign === ">" ? "above" : "at_most"]: level })),
  };
}
