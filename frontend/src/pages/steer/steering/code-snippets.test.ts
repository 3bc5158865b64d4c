import { describe, expect, it } from "vitest";

import { shellWord, steerCommand, steerPython } from "./code-snippets";

const REQUEST = {
  prompt: "A short note on the bridge:",
  edits: [
    { expert: 52940, mode: "scale", strength: 4 },
    { expert: 7316, mode: "add", strength: -2.5 },
    { expert: 81346, mode: "ablate", strength: 1 },
  ],
  mode: "residual",
  scope: "all",
  sampling: { max_tokens: 64, temperature: 0.7, top_p: 0.95, top_k: 0, repetition_penalty: 1.1, seed: 0, stop: [] },
} as const;
type Request = Parameters<typeof steerCommand>[1];
const request = (changes: object = {}) => ({ ...REQUEST, ...changes }) as unknown as Request;

describe("shell words", () => {
  it("are quoted if necessary", () => {
    expect(shellWord("plain-1.5")).toBe("plain-1.5");
    expect(shellWord("two words")).toBe('"two words"');
    expect(shellWord('$HOME "x"')).toBe(`'$HOME "x"'`);
    expect(shellWord("it's $5\n")).toBe(`'it'\\''s $5\n'`);
    expect(shellWord("")).toBe('""');
  });
});

describe("the command", () => {
  it("has the edits and the options that differ from the defaults", () => {
    expect(steerCommand("demo", request())).toBe(
      [
        "mxd steer demo",
        '"A short note on the bridge:"',
        "--edit 52940:scale:4 --edit 7316:add:-2.5",
        "--edit 81346:ablate",
      ].join(" \\\n  "),
    );
    const sampling = { ...REQUEST.sampling, temperature: 0, seed: 16, stop: ["\n"] };
    const command = steerCommand("demo", request({ edits: [], scope: "generated", mode: "replace", sampling }));
    expect(command.split(" \\\n  ").slice(2)).toEqual([
      "--temperature 0 --seed 16 --stop '\n'",
      "--mode replace --scope generated",
    ]);
  });

  it("has the number of active experts if it differs", () => {
    expect(steerCommand("demo", request({ k: 4, edits: [] }))).toContain("--k 4");
    expect(steerPython("demo", request({ k: 4 }))).toContain("\n    k=4,\n");
    expect(steerPython("demo", request({ k: null }))).not.toContain("k=");
  });

  it("separates a prompt that starts with a dash", () => {
    expect(steerCommand("demo", request({ prompt: "-- so", edits: [] }))).toBe('mxd steer \\\n  -- demo "-- so"');
  });
});

describe("the Python code", () => {
  it("generates with the edits as on the command line", () => {
    const code = steerPython("demo", request());
    expect(code).toContain('mxd.generate(\n    "demo",\n    "A short note on the bridge:",\n');
    expect(code).toContain('[Edit.model_validate("52940:scale:4"), Edit.model_validate("7316:add:-2.5"), ');
    expect(code.endsWith(')\nprint(generation.text("steered"))')).toBe(true);
    expect(code).not.toContain("seed=");
  });

  it("loads the runs of other layers, and has the conditions", () => {
    const when = { first: 20, gates: [{ expert: 3, above: "median" }] };
    const edits = [...REQUEST.edits, { expert: 7, mode: "add", strength: 1, run: "other", when }];
    const code = steerPython("demo", request({ edits }));
    expect(code).toContain('    ["demo", "other"],\n');
    expect(code).toContain('Edit.model_validate("other/7:add:1@when:3>median@first:20")],\n');
    expect(steerCommand("demo", request({ edits }))).toContain('--edit "other/7:add:1@when:3>median@first:20"');
  });

  it("writes selected tokens", () => {
    expect(steerPython("demo", request({ positions: [1, 4] }))).toContain("positions=(1, 4,),");
    expect(steerCommand("demo", request({ positions: [1, 4] }))).toContain("--positions 1,4");
    expect(steerCommand("demo", request({ positions: [] }))).toContain("--positions none");
  });

  it("prints several texts one after the other", () => {
    const code = steerPython("demo", request({ sampling: { ...REQUEST.sampling, samples: 3 } }));
    expect(code.endsWith(String.raw`print(*(text.text for text in generation.steered), sep="\n---\n")`)).toBe(true);
  });

  it("escapes strings", () => {
    const sampling = { ...REQUEST.sampling, stop: ['"\n'], max_tokens: 8 };
    const code = steerPython("demo", request({ prompt: 'He said "no".\n', edits: [], sampling }));
    expect(code).toContain(String.raw`    "He said \"no\".\n",`);
    expect(code).toContain(String.raw`    max_tokens=8,` + "\n" + String.raw`    stop=("\"\n",),`);
  });
});
