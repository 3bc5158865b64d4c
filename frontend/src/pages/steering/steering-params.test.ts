import { describe, expect, it } from "vitest";

import { readParams, writeParams } from "@/url-state";

import { paramsOfRequest, samplingInWords, scopeInWords, STEERING_PARAMS, steeringRequest } from "./steering-params";

const read = (search: string) => readParams(STEERING_PARAMS, search);

describe("the address of a steered text", () => {
  it("comes back as it was written, so that a link writes the same texts", () => {
    const values = {
      ...read(""),
      prompt: "Dear Sir,\nI am",
      edits: [
        { expert: 12, mode: "add", strength: -2.5 },
        { expert: 40, mode: "off", strength: 1 },
      ],
      apply: "replace",
      scope: "generated",
      k: 4,
      tokens: 20,
      samples: 3,
      temperature: 0,
      seed: 2 ** 40,
      stop: ["\n\n", "a,b"],
      lock: { arm: "steered", sample: 1, position: 12 },
      code: "python",
    } as const;
    const search = writeParams(STEERING_PARAMS, "?run=demo", values);
    expect(read(search)).toEqual(values);
    expect(new URLSearchParams(search).get("edits")).toBe("12:add:-2.5,40:off");
  });

  it("is short where nothing was changed", () => {
    expect(writeParams(STEERING_PARAMS, "", read(""))).toBe("");
  });

  it("reads nonsense as nothing", () => {
    const values = read("?stop=[1&lock=steered&tokens=x&temperature=-4&edits=a:b");
    expect(values).toMatchObject({ stop: [], lock: null, tokens: 64, temperature: 0, edits: [] });
    expect(read('?stop=["a",3,""]').stop).toEqual(["a"]);
  });
});

describe("what the server is asked for", () => {
  it("holds everything that determines the texts, and nothing else", () => {
    const params = read("?prompt=It&tokens=8&penalty=1.3&lock=default.0.2&code=python");
    expect(steeringRequest(params, [{ expert: 7, mode: "scale", strength: 4 }])).toEqual({
      prompt: "It",
      edits: [{ expert: 7, mode: "scale", strength: 4 }],
      apply: "on-top",
      scope: "all",
      sampling: {
        max_tokens: 8,
        samples: 1,
        temperature: 0.7,
        top_p: 0.95,
        top_k: 0,
        repetition_penalty: 1.3,
        seed: 0,
        stop: [],
      },
    });
  });

  it("holds how many experts of a token are let through, where fewer are", () => {
    expect(steeringRequest(read("?prompt=It&k=4"), [])).toMatchObject({ k: 4 });
    expect(steeringRequest(read("?prompt=It"), [])).not.toHaveProperty("k");
    expect(paramsOfRequest({ prompt: "It", k: 4 })).toMatchObject({ k: 4 });
  });

  it("is said in a line", () => {
    expect(samplingInWords(read(""))).toBe("temperature 0.7, 64 tokens, seed 0");
    expect(samplingInWords(read('?temperature=0&samples=2&stop=["x"]'))).toBe(
      "greedy, 64 tokens, 2 samples, 1 stop text",
    );
    expect(scopeInWords(read("?scope=generated&apply=replace"))).toBe("generated tokens only, in place of the MLP");
  });
});
