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
    expect(steerPython("demo", request({ k: 4 }), new Map())).toContain("\n    k=4,\n");
    expect(steerPython("demo", request({ k: null }), new Map())).not.toContain("k=");
  });

  it("separates a prompt that starts with a dash", () => {
    expect(steerCommand("demo", request({ prompt: "-- so", edits: [] }))).toBe('mxd steer \\\n  -- demo "-- so"');
  });
});

describe("the Python code", () => {
  it("contains the units of add and set", () => {
    const code = steerPython(
      "demo",
      request(),
      new Map([
        ["7316", 2.25],
        ["52940", 9],
      ]),
    );
    expect(code).toContain('run = Run.load("demo")');
    expect(code).toContain('        Edit(expert=7316, mode="add", strength=-2.5),\n');
    expect(code).toContain('        Edit(expert=81346, mode="ablate"),\n');
    expect(code).toContain("units = {run.name: {7316: 2.25}}");
    expect(code).toContain("steer(language_model, run, config, units)");
    expect(code).not.toContain("sampling=");
  });

  it("loads the runs of other layers, with their units", () => {
    const edits = [...REQUEST.edits, { expert: 7, mode: "add", strength: 1, run: "other" }];
    const units = new Map([
      ["7316", 2.25],
      ["other/7", 3],
    ]);
    const code = steerPython("demo", request({ edits }), units);
    expect(code).toContain('Edit(expert=7, mode="add", strength=1, run="other"),');
    expect(code).toContain('units = {run.name: {7316: 2.25}, "other": {7: 3}}');
    expect(code).toContain('steer(language_model, [run, Run.load("other")], config, units)');
    expect(steerCommand("demo", request({ edits }))).toContain("--edit other/7:add:1");
  });

  it("writes chats and selected tokens", () => {
    const turns = [{ role: "user", text: 'a "b"' }];
    const code = steerPython("demo", request({ prompt: undefined, turns, positions: [1, 4] }), new Map());
    expect(code).toContain(
      String.raw`prompt=chat_text(language_model.tokenizer, (Turn(role="user", text="a \"b\""),)),`,
    );
    expect(code).toContain("positions=(1, 4,),");
    expect(steerCommand("demo", request({ positions: [1, 4] }))).toContain("--positions 1,4");
    expect(steerCommand("demo", request({ positions: [] }))).toContain("--positions none");
  });

  it("prints several texts one after the other", () => {
    const code = steerPython("demo", request({ sampling: { ...REQUEST.sampling, samples: 3 } }), new Map());
    expect(code).toContain('texts = [""] * 3');
    expect(code.endsWith(String.raw`print("\n---\n".join(texts))`)).toBe(true);
  });

  it("escapes strings", () => {
    const sampling = { ...REQUEST.sampling, stop: ['"\n'], max_tokens: 8 };
    const code = steerPython("demo", request({ prompt: 'He said "no".\n', edits: [], sampling }), new Map());
    expect(code).toContain(String.raw`    prompt="He said \"no\".\n",`);
    expect(code).toContain(String.raw`    sampling=Sampling(max_tokens=8, stop=("\"\n",)),`);
    expect(code).toContain("steer(language_model, run, config):");
  });
});
