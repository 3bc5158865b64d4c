/** Code that reproduces the page's texts: a shell command, and Python. */

import type { SteeringRequest } from "@/api/types";
import { type Edit, editKey, formatEdit } from "@/lib/edits/edits";

/** Quote a word for a POSIX shell, if necessary. */
export function shellWord(text: string): string {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (!/["$`\\!\n]/.test(text)) return `"${text}"`;
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

type Sampling = NonNullable<SteeringRequest["sampling"]>;
type Setting = Exclude<keyof Sampling, "stop">;

/** Defaults of the command and the library; options equal to them are left out. */
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

interface ChangedSetting {
  readonly name: Setting;
  readonly value: number;
}

function nonDefault(sampling: Sampling): readonly ChangedSetting[] {
  return SETTINGS.flatMap((name) => {
    const value = sampling[name] ?? DEFAULTS[name];
    return value === DEFAULTS[name] ? [] : [{ name, value }];
  });
}

/** The request's edits, with a run only if one is given. */
function requestEdits(request: SteeringRequest): readonly Edit[] {
  return (request.edits ?? []).map(({ run, ...edit }) => ({ ...(edit as Edit), ...(run != null && { run }) }));
}

/** Preferred line length in characters. */
const LINE_LENGTH = 44;

/** Join options into as few lines as possible. */
function wrapOptions(options: readonly string[]): readonly string[] {
  return options.reduce<readonly string[]>((lines, option) => {
    const last = lines.at(-1);
    const fits = last !== undefined && last.length + option.length < LINE_LENGTH;
    return fits ? lines.with(-1, `${last} ${option}`) : [...lines, option];
  }, []);
}

/** `none` if no token is selected: then nothing is edited. */
const formatPositions = (positions: readonly number[]) => (positions.length === 0 ? "none" : positions.join(","));

/** `mxd steer …`, broken into lines between options. */
export function steerCommand(run: string, request: SteeringRequest): string {
  const { prompt = "", mode = "residual", scope = "all", positions, k, sampling = {} } = request;
  const options = [
    ...requestEdits(request).map((edit) => `--edit ${formatEdit(edit)}`),
    ...nonDefault(sampling).map(({ name, value }) => `--${name.replaceAll("_", "-")} ${value}`),
    ...(sampling.stop ?? []).map((text) => `--stop ${shellWord(text)}`),
    ...(mode === "residual" ? [] : [`--mode ${mode}`]),
    ...(k == null ? [] : [`--k ${k}`]),
    ...(positions == null
      ? scope === "all"
        ? []
        : [`--scope ${scope}`]
      : [`--positions ${formatPositions(positions)}`]),
  ];
  // A prompt that starts with a dash goes last, after `--`.
  const lines = prompt.startsWith("-")
    ? ["mxd steer", ...wrapOptions(options), `-- ${run} ${shellWord(prompt)}`]
    : [`mxd steer ${run}`, shellWord(prompt), ...wrapOptions(options)];
  return lines.join(" \\\n  ");
}

const python = (value: string | readonly string[]) => JSON.stringify(value);

function pythonEdit({ expert, mode, strength, run }: Edit): string {
  const arguments_ = [
    `expert=${expert}`,
    `mode=${python(mode)}`,
    ...(mode === "ablate" ? [] : [`strength=${strength}`]),
    ...(run == null ? [] : [`run=${python(run)}`]),
  ];
  return `        Edit(${arguments_.join(", ")}),`;
}

function pythonSampling(sampling: Sampling): string {
  const settings = nonDefault(sampling).map(({ name, value }) => `${name}=${value}`);
  const stop = sampling.stop ?? [];
  if (stop.length > 0) settings.push(`stop=(${stop.map((text) => `${python(text)},`).join(" ")})`);
  return settings.length === 0 ? "" : `    sampling=Sampling(${settings.join(", ")}),`;
}

/** A single text is streamed, several are printed one after the other. */
function pythonLoop(steps: string, samples: number): readonly string[] {
  const isSteeredLine = '    if isinstance(step, NewToken) and step.arm == "steered":';
  if (samples === 1) return [`for step in ${steps}:`, isSteeredLine, '        print(step.text, end="", flush=True)'];
  return [
    `texts = [""] * ${samples}`,
    `for step in ${steps}:`,
    isSteeredLine,
    "        texts[step.sample] += step.text",
    'print("\\n---\\n".join(texts))',
  ];
}

/** The prompt as Python code: a string, or chat turns with the tokenizer's template. */
function pythonPrompt({ prompt = "", turns = [] }: SteeringRequest): string {
  if (turns.length === 0) return `    prompt=${python(prompt)},`;
  const turnsCode = turns.map((turn) => `Turn(role=${python(turn.role)}, text=${python(turn.text)}),`);
  return `    prompt=chat_text(language_model.tokenizer, (${turnsCode.join(" ")})),`;
}

function pythonScope({ scope = "all", positions }: SteeringRequest): readonly string[] {
  if (positions != null) return [`    positions=(${positions.map((position) => `${position},`).join(" ")}),`];
  return scope === "all" ? [] : [`    scope=${python(scope)},`];
}

/** Units of add and set, by run: `{run.name: {7: 2.5}, "other": {3: 1.25}}`. */
function pythonUnits(request: SteeringRequest, units: ReadonlyMap<string, number>): string {
  const byRun = new Map<string, string[]>();
  for (const edit of requestEdits(request)) {
    const unit = units.get(editKey(edit));
    if ((edit.mode !== "add" && edit.mode !== "set") || unit === undefined) continue;
    const name = edit.run === undefined ? "run.name" : python(edit.run);
    byRun.set(name, [...(byRun.get(name) ?? []), `${edit.expert}: ${unit}`]);
  }
  return [...byRun].map(([name, entries]) => `${name}: {${entries.join(", ")}}`).join(", ");
}

/** Python code that prints the steered text. `units`: 99th percentiles by edit key, for add and set. */
export function steerPython(run: string, request: SteeringRequest, units: ReadonlyMap<string, number>): string {
  const { mode = "residual", sampling = {} } = request;
  const unitsCode = pythonUnits(request, units);
  const others = [...new Set(requestEdits(request).flatMap((edit) => (edit.run === undefined ? [] : [edit.run])))];
  const runs = others.length === 0 ? "run" : `[run, ${others.map((name) => `Run.load(${python(name)})`).join(", ")}]`;
  const config = [
    pythonPrompt(request),
    ...(requestEdits(request).length === 0 ? [] : ["    edits=(", ...requestEdits(request).map(pythonEdit), "    ),"]),
    ...(mode === "residual" ? [] : [`    mode=${python(mode)},`]),
    ...(request.k == null ? [] : [`    k=${request.k},`]),
    ...pythonScope(request),
    ...[pythonSampling(sampling)].filter((line) => line !== ""),
  ];
  return [
    "from mxd.trainer.config import Edit, Sampling, SteeringConfig",
    "from mxd.trainer.inference.steering import NewToken, steer",
    "from mxd.trainer.language_model.model import LanguageModel",
    "from mxd.trainer.storage.run import Run",
    ...((request.turns ?? []).length === 0
      ? []
      : ["from mxd.trainer.language_model.chat_template import Turn, chat_text"]),
    "",
    `run = Run.load(${python(run)})`,
    "language_model = LanguageModel.load(run.language_model_source)",
    "config = SteeringConfig(",
    ...config,
    ")",
    ...(unitsCode === "" ? [] : [`units = {${unitsCode}}`]),
    ...pythonLoop(`steer(language_model, ${runs}, config${unitsCode === "" ? "" : ", units"})`, sampling.samples ?? 1),
  ].join("\n");
}
