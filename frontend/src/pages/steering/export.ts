/** The same texts without this page: as a command, and as Python. */

import type { SteeringRequest } from "@/api/types";
import { type Edit, formatEdit } from "@/lib/edits";

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

const edits = (request: SteeringRequest) => (request.edits ?? []) as readonly Edit[];

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

/** `mxd steer …`, broken after words that belong together. */
export function steerCommand(run: string, request: SteeringRequest): string {
  const { prompt = "", apply = "on-top", scope = "all", sampling = {} } = request;
  const options = [
    ...edits(request).map((edit) => `--edit ${formatEdit(edit)}`),
    ...changed(sampling).map(({ name, value }) => `--${name.replaceAll("_", "-")} ${value}`),
    ...(sampling.stop ?? []).map((text) => `--stop ${shellWord(text)}`),
    ...(apply === "on-top" ? [] : [`--apply ${apply}`]),
    ...(scope === "all" ? [] : [`--scope ${scope}`]),
  ];
  // A prompt that begins like an option goes last, behind the sign that options are over.
  const lines = prompt.startsWith("-")
    ? ["mxd steer", ...filled(options), `-- ${run} ${shellWord(prompt)}`]
    : [`mxd steer ${run}`, shellWord(prompt), ...filled(options)];
  return lines.join(" \\\n  ");
}

const python = (value: string | readonly string[]) => JSON.stringify(value);

function pythonEdit({ expert, mode, strength }: Edit): string {
  const arguments_ = [`expert=${expert}`, `mode=${python(mode)}`, ...(mode === "off" ? [] : [`strength=${strength}`])];
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

/** Python that prints what the steered pane shows. `units`: 99th percentiles of the experts, for add and set. */
export function steerPython(run: string, request: SteeringRequest, units: ReadonlyMap<number, number>): string {
  const { apply = "on-top", scope = "all", sampling = {} } = request;
  const known = edits(request).flatMap(({ expert, mode }) => {
    const unit = units.get(expert);
    return (mode === "add" || mode === "set") && unit !== undefined ? [`${expert}: ${unit}`] : [];
  });
  const config = [
    `    prompt=${python(request.prompt ?? "")},`,
    ...(edits(request).length === 0 ? [] : ["    edits=(", ...edits(request).map(pythonEdit), "    ),"]),
    ...(apply === "on-top" ? [] : [`    apply=${python(apply)},`]),
    ...(scope === "all" ? [] : [`    scope=${python(scope)},`]),
    ...[pythonSampling(sampling)].filter((line) => line !== ""),
  ];
  return [
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
    ...(known.length === 0 ? [] : [`units = {run.name: {${known.join(", ")}}}`]),
    ...pythonLoop(`steer(language_model, run, config${known.length === 0 ? "" : ", units"})`, sampling.samples ?? 1),
  ].join("\n");
}
