/** Code that reproduces the page's texts: a shell command, and Python. */

import type { SteeringRequest } from "@/api/types";
import { formatEdit } from "@/lib/edits/edits";
import { requestEdits } from "@/pages/steer/steering/steering-params";

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
    ...requestEdits(request.edits ?? []).map((edit) => `--edit ${shellWord(formatEdit(edit))}`),
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

function pythonSampling(sampling: Sampling): readonly string[] {
  const stop = sampling.stop ?? [];
  return [
    ...nonDefault(sampling).map(({ name, value }) => `${name}=${value}`),
    ...(stop.length === 0 ? [] : [`stop=(${stop.map((text) => `${python(text)},`).join(" ")})`]),
  ];
}

function pythonScope({ scope = "all", positions }: SteeringRequest): readonly string[] {
  if (positions != null) return [`positions=(${positions.map((position) => `${position},`).join(" ")})`];
  return scope === "all" ? [] : [`scope=${python(scope)}`];
}

/** Python code that prints the steered text. The request's prompt is a text. */
export function steerPython(run: string, request: SteeringRequest): string {
  const { prompt = "", mode = "residual", k, sampling = {} } = request;
  const edits = requestEdits(request.edits ?? []);
  const others = edits.flatMap((edit) => (edit.run === undefined ? [] : [edit.run]));
  const runs = [...new Set([run, ...others])];
  const arguments_ = [
    runs.length === 1 ? python(run) : `[${runs.map((name) => python(name)).join(", ")}]`,
    python(prompt),
    `[${edits.map((edit) => `Edit.model_validate(${python(formatEdit(edit))})`).join(", ")}]`,
    ...(mode === "residual" ? [] : [`mode=${python(mode)}`]),
    ...(k == null ? [] : [`k=${k}`]),
    ...pythonScope(request),
    ...pythonSampling(sampling),
  ];
  return [
    "import mxd",
    "from mxd.trainer.config import Edit",
    "",
    "generation = mxd.generate(",
    ...arguments_.map((argument) => `    ${argument},`),
    ")",
    (sampling.samples ?? 1) === 1
      ? 'print(generation.text("steered"))'
      : 'print(*(text.text for text in generation.steered), sep="\\n---\\n")',
  ].join("\n");
}
