/** The same texts without this page: as a command, and as Python. */

import type { SteeringRequest } from "@/api/types";
import { type Edit, editKey, formatEdit } from "@/lib/edits";

/** For a POSIX shell; quoted only where it must be. */
export function shellWord(text: string): string {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (!/["$`\\!\n]/.test(text)) return `"${text}"`;
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

type Sampling = NonNullable<SteeringRequest["sampling"]>;
type Setting = Exclude<keyof Sampling, "stop">;

/** What the command and the library take where nothing is said. */
const DEFAULTS: Readonly<Record<Setting, number>> = {
  max_tokens: 64,
  samples: 1,
  temperature: 0.7,
  top_p: 0.95,
  top_k: 0,
  repetition_penalty: 1.1,
  seed: 0,
};
const SETTINGS = Object.keys(DEFAULTS) as Setting[];

interface Changed {
  readonly name: Setting;
  readonly value: number;
}

function changed(sampling: Sampling): readonly Changed[] {
  return SETTINGS.flatMap((name) => {
    const value = sampling[name] ?? DEFAULTS[name];
    return value === DEFAULTS[name] ? [] : [{ name, value }];
  });
}

/** Of the request, with a run only where one is named. */
function edits(request: SteeringRequest): readonly Edit[] {
  return (request.edits ?? []).map(({ run, ...edit }) => ({ ...(edit as Edit), ...(run != null && { run }) }));
}

/** Characters of a line, where words can be kept together. */
const LINE = 44;

/** Options on as few lines as fit. */
function filled(options: readonly string[]): readonly string[] {
  return options.reduce<readonly string[]>((lines, option) => {
    const last = lines.at(-1);
    const fits = last !== undefined && last.length + option.length < LINE;
    return fits ? lines.with(-1, `${last} ${option}`) : [...lines, option];
  }, []);
}

/** `none` where no token is chosen: then nothing is touched. */
const positionsWord = (positions: readonly number[]) => (positions.length === 0 ? "none" : positions.join(","));

/** `mxd steer …`, broken after words that belong together. */
export function steerCommand(run: string, request: SteeringRequest): string {
  const { prompt = "", apply = "on-top", scope = "all", positions, k, sampling = {} } = request;
  const options = [
    ...edits(request).map((edit) => `--edit ${formatEdit(edit)}`),
    ...changed(sampling).map(({ name, value }) => `--${name.replaceAll("_", "-")} ${value}`),
    ...(sampling.stop ?? []).map((text) => `--stop ${shellWord(text)}`),
    ...(apply === "on-top" ? [] : [`--apply ${apply}`]),
    ...(k == null ? [] : [`--k ${k}`]),
    ...(positions == null
      ? scope === "all"
        ? []
        : [`--scope ${scope}`]
      : [`--positions ${positionsWord(positions)}`]),
  ];
  // A prompt that begins like an option goes last, behind the sign that options are over.
  const lines = prompt.startsWith("-")
    ? ["mxd steer", ...filled(options), `-- ${run} ${shellWord(prompt)}`]
    : [`mxd steer ${run}`, shellWord(prompt), ...filled(options)];
  return lines.join(" \\\n  ");
}

const python = (value: string | readonly string[]) => JSON.stringify(value);

function pythonEdit({ expert, mode, strength, run }: Edit): string {
  const arguments_ = [
    `expert=${expert}`,
    `mode=${python(mode)}`,
    ...(mode === "off" ? [] : [`strength=${strength}`]),
    ...(run == null ? [] : [`run=${python(run)}`]),
  ];
  return `        Edit(${arguments_.join(", ")}),`;
}

function pythonSampling(sampling: Sampling): string {
  const settings = changed(sampling).map(({ name, value }) => `${name}=${value}`);
  const stop = sampling.stop ?? [];
  if (stop.length > 0) settings.push(`stop=(${stop.map((text) => `${python(text)},`).join(" ")})`);
  return settings.length === 0 ? "" : `    sampling=Sampling(${settings.join(", ")}),`;
}

/** One text is printed as it comes, several one after the other. */
function pythonLoop(steps: string, samples: number): readonly string[] {
  const isSteered = '    if isinstance(step, NewToken) and step.arm == "steered":';
  if (samples === 1) return [`for step in ${steps}:`, isSteered, '        print(step.text, end="", flush=True)'];
  return [
    `texts = [""] * ${samples}`,
    `for step in ${steps}:`,
    isSteered,
    "        texts[step.sample] += step.text",
    'print("\\n---\\n".join(texts))',
  ];
}

/** The prompt as Python writes it: a text, or chat turns by the tokenizer's template. */
function pythonPrompt({ prompt = "", turns = [] }: SteeringRequest): string {
  if (turns.length === 0) return `    prompt=${python(prompt)},`;
  const said = turns.map((turn) => `Turn(role=${python(turn.role)}, text=${python(turn.text)}),`);
  return `    prompt=chat_text(language_model.tokenizer, (${said.join(" ")})),`;
}

function pythonScope({ scope = "all", positions }: SteeringRequest): readonly string[] {
  if (positions != null) return [`    positions=(${positions.map((position) => `${position},`).join(" ")}),`];
  return scope === "all" ? [] : [`    scope=${python(scope)},`];
}

/** Units of add and set, by run: `{run.name: {7: 2.5}, "other": {3: 1.25}}`. */
function pythonUnits(request: SteeringRequest, units: ReadonlyMap<string, number>): string {
  const byRun = new Map<string, string[]>();
  for (const edit of edits(request)) {
    const unit = units.get(editKey(edit));
    if ((edit.mode !== "add" && edit.mode !== "set") || unit === undefined) continue;
    const name = edit.run === undefined ? "run.name" : python(edit.run);
    byRun.set(name, [...(byRun.get(name) ?? []), `${edit.expert}: ${unit}`]);
  }
  return [...byRun].map(([name, known]) => `${name}: {${known.join(", ")}}`).join(", ");
}

/** Python that prints what the steered pane shows. `units`: 99th percentiles by key of the edit, for add and set. */
export function steerPython(run: string, request: SteeringRequest, units: ReadonlyMap<string, number>): string {
  const { apply = "on-top", sampling = {} } = request;
  const known = pythonUnits(request, units);
  const others = [...new Set(edits(request).flatMap((edit) => (edit.run === undefined ? [] : [edit.run])))];
  const runs = others.length === 0 ? "run" : `[run, ${others.map((name) => `Run.load(${python(name)})`).join(", ")}]`;
  const config = [
    pythonPrompt(request),
    ...(edits(request).length === 0 ? [] : ["    edits=(", ...edits(request).map(pythonEdit), "    ),"]),
    ...(apply === "on-top" ? [] : [`    apply=${python(apply)},`]),
    ...(request.k == null ? [] : [`    k=${request.k},`]),
    ...pythonScope(request),
    ...[pythonSampling(sampling)].filter((line) => line !== ""),
  ];
  return [
    ...((request.turns ?? []).length === 0 ? [] : ["from trainer.chat import Turn, chat_text"]),
    "from trainer.config import Edit, Sampling, SteeringConfig",
    "from trainer.language_model import LanguageModel",
    "from trainer.run import Run",
    "from trainer.steering import NewToken, steer",
    "",
    `run = Run.load(${python(run)})`,
    "language_model = LanguageModel.load(run.language_model_source)",
    "config = SteeringConfig(",
    ...config,
    ")",
    ...(known === "" ? [] : [`units = {${known}}`]),
    ...pythonLoop(`steer(language_model, ${runs}, config${known === "" ? "" : ", units"})`, sampling.samples ?? 1),
  ].join("\n");
}
