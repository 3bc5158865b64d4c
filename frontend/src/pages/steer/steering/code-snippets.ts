/** Code that reproduces the page's texts: a shell command, and Python. */

import type { Sampling, SteeringRequest } from "@/api/types";
import { formatEdit } from "@/lib/edits/edits";
import { requestEdits, SAMPLING } from "./steering-params";

/** Quote a word for a POSIX shell, if necessary. */
export function shellWord(text: string): string {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (!/["$`\\!\n]/.test(text)) return `"${text}"`;
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Settings that differ from the defaults, which the command and the library share with the server. */
const nonDefault = (sampling: Sampling) =>
  Object.values(SAMPLING).flatMap(({ field: name, usual }) => {
    const value = sampling[name] ?? usual;
    return value === usual ? [] : [{ name, value }];
  });

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

/** `mxd steer …`, broken into lines between options; `flags` are more of them. */
export function steerCommand(run: string, request: SteeringRequest, flags = ""): string {
  const { prompt = "", mode = "residual", scope = "all", positions, k, sampling = {} } = request;
  const options = [
    ...requestEdits(request.edits ?? []).map((edit) => `--edit ${shellWord(formatEdit(edit))}`),
    ...nonDefault(sampling).map(({ name, value }) => `--${name.replaceAll("_", "-")} ${value}`),
    ...(sampling.stop ?? []).map((text) => `--stop ${shellWord(text)}`),
    ...(mode === "residual" ? [] : [`--mode ${mode}`]),
    ...(k == null ? [] : [`--k ${k}`]),
    ...(positions == null ? [] : [`--positions ${positions.join(",") || "none"}`]),
    ...(positions != null || scope === "all" ? [] : [`--scope ${scope}`]),
    ...(flags === "" ? [] : [flags]),
  ];
  // A prompt that starts with a dash goes last, after `--`.
  const lines = prompt.startsWith("-")
    ? ["mxd steer", ...wrapOptions(options), `-- ${run} ${shellWord(prompt)}`]
    : [`mxd steer ${run}`, shellWord(prompt), ...wrapOptions(options)];
  return lines.join(" \\\n  ");
}

const python = (value: string | readonly string[]) => JSON.stringify(value);

/** A comma after each part makes a tuple of one, too. */
const tuple = (parts: readonly (string | number)[]) => `(${parts.map((part) => `${part},`).join(" ")})`;

/** Python code that prints the steered text. The request's prompt is a text. */
export function steerPython(run: string, request: SteeringRequest): string {
  const { prompt = "", mode = "residual", scope = "all", positions, k, sampling = {} } = request;
  const { stop = [] } = sampling;
  const edits = requestEdits(request.edits ?? []);
  const others = edits.flatMap((edit) => (edit.run === undefined ? [] : [edit.run]));
  const runs = [...new Set([run, ...others])];
  const arguments_ = [
    runs.length === 1 ? python(run) : `[${runs.map((name) => python(name)).join(", ")}]`,
    python(prompt),
    `[${edits.map((edit) => `Edit.model_validate(${python(formatEdit(edit))})`).join(", ")}]`,
    ...(mode === "residual" ? [] : [`mode=${python(mode)}`]),
    ...(k == null ? [] : [`k=${k}`]),
    ...(positions == null ? [] : [`positions=${tuple(positions)}`]),
    ...(positions != null || scope === "all" ? [] : [`scope=${python(scope)}`]),
    ...nonDefault(sampling).map(({ name, value }) => `${name}=${value}`),
    ...(stop.length === 0 ? [] : [`stop=${tuple(stop.map(python))}`]),
  ];
  return [
    "import mxd",
    "from mxd.trainer.config.steering import Edit",
    "",
    "generation = mxd.generate(",
    ...arguments_.map((argument) => `    ${argument},`),
    ")",
    (sampling.samples ?? 1) === 1
      ? 'print(generation.text("steered"))'
      : 'print(*(text.text for text in generation.steered), sep="\\n---\\n")',
  ].join("\n");
}
