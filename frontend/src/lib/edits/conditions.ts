/** Conditions of edits, written as on the command line: `@when:12>median@first:20`. */

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
