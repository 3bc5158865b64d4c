import { describe, expect, it, test } from "vitest";

import { readParams, writeParams } from "@/hooks/use-url-state";

import { formatEdits } from "@/lib/edits/edits";

import {
  describeSampling,
  describeScope,
  requestToParams,
  STEERING_PARAMS,
  steeringRequest,
  wantedTexts,
} from "./steering-params";

const read = (search: string) => readParams(STEERING_PARAMS, search);

describe("URL parameters of Steering", () => {
  it("round-trip, so that a link reproduces the texts", () => {
    const values = {
      ...read(""),
      prompt: "Dear Sir,\nI am",
      edits: [
        { expert: 12, mode: "add", strength: -2.5 },
        { expert: 40, mode: "ablate", strength: 1 },
      ],
      mode: "replace",
      scope: "generated",
      k: 4,
      tokens: 20,
      samples: 3,
      temperature: 0,
      seed: 2 ** 40,
      stop: ["\n\n", "a,b"],
      lock: { variant: "steered", sample: 1, position: 12 },
      code: "python",
    } as const;
    const search = writeParams(STEERING_PARAMS, "?run=demo", values);
    expect(read(search)).toEqual(values);
    expect(new URLSearchParams(search).get("edits")).toBe("12:add:-2.5,40:ablate");
  });

  it("are omitted at their defaults", () => {
    expect(writeParams(STEERING_PARAMS, "", read(""))).toBe("");
  });

  it("fall back to defaults for invalid values", () => {
    const values = read("?stop=[1&lock=steered&tokens=x&temperature=-4&edits=a:b");
    expect(values).toMatchObject({ stop: [], lock: null, tokens: 64, temperature: 0, edits: [] });
    expect(read('?stop=["a",3,""]').stop).toEqual(["a"]);
  });
});

describe("the steering request", () => {
  it("contains exactly what determines the texts", () => {
    const params = read("?prompt=It&tokens=8&penalty=1.3&lock=default.0.2&code=python");
    expect(steeringRequest(params, [{ expert: 7, mode: "scale", strength: 4 }])).toEqual({
      prompt: "It",
      edits: [{ expert: 7, mode: "scale", strength: 4 }],
      mode: "residual",
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

  it("keeps conditions, also those of a saved session", () => {
    const { edits } = read(`?edits=${encodeURIComponent("7:add:3@generated@when:9>median")}`);
    const request = steeringRequest(read("?prompt=It"), edits);
    expect(request.edits?.[0]?.when).toMatchObject({ scope: "generated", gates: [{ expert: 9, above: "median" }] });
    const gate = { expert: 9, run: null, above: "median", at_most: null } as const;
    const when = { ...request.edits?.[0]?.when, gates: [gate] };
    const saved = requestToParams({
      prompt: "It",
      edits: [{ expert: 7, mode: "add", strength: 3, run: null, when }],
    }).edits;
    expect(formatEdits(saved ?? [])).toBe(formatEdits(edits));
  });

  it("contains the number of active experts if it differs", () => {
    expect(steeringRequest(read("?prompt=It&k=4"), [])).toMatchObject({ k: 4 });
    expect(steeringRequest(read("?prompt=It"), [])).not.toHaveProperty("k");
    expect(requestToParams({ prompt: "It", k: 4 })).toMatchObject({ k: 4 });
  });

  it("of a saved chat has the history of either model", () => {
    const turns = [{ role: "user", text: "Hi" } as const, { role: "assistant", text: "Yo" } as const];
    const originals = [{ role: "user", text: "Hi" } as const, { role: "assistant", text: "Hello" } as const];
    expect(requestToParams({ turns }, originals).turns).toEqual([turns[0], { ...turns[1], original: "Hello" }]);
    expect(requestToParams({ turns }).turns).toEqual(turns);
  });

  it("is summarised in a line", () => {
    expect(describeSampling(read(""))).toBe("temperature 0.7, 64 tokens, seed 0");
    expect(describeSampling(read('?temperature=0&samples=2&stop=["x"]'))).toBe(
      "greedy, 64 tokens, 2 samples, 1 stop text",
    );
    expect(describeScope(read("?scope=generated&mode=replace"))).toBe("generated tokens only, full replacement");
  });
});

test("a wanted word gets the space that separates it from the prompt", () => {
  expect(wantedTexts("medicine", "to take the")).toEqual([" medicine"]);
  expect(wantedTexts(" medicine ", "to take the ")).toEqual(["medicine"]);
  expect(wantedTexts("medicine", "line\n")).toEqual(["medicine"]);
  expect(wantedTexts("medicine", "")).toEqual(["medicine"]);
});

test("punctuation follows without a space, an opening quotation mark with one", () => {
  expect(wantedTexts("!", "to take the")).toEqual(["!"]);
  expect(wantedTexts("“Yes", "He said")).toEqual([" “Yes"]);
});

test("alternatives are separated by a vertical bar", () => {
  expect(wantedTexts("sea | the beach |", "went to")).toEqual([" sea", " the beach"]);
  expect(wantedTexts(" | ", "went to")).toEqual([]);
});
