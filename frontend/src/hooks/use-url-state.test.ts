import { describe, expect, it } from "vitest";

import { choiceParam, editsParam, flagParam, numberParam, readParams, textParam, writeParams } from "./use-url-state";

const SPEC = {
  search: textParam(""),
  run: textParam(null),
  scale: numberParam(4, { min: 0, max: 8 }),
  lock: numberParam(null),
  order: choiceParam(["asc", "desc"], "desc"),
  breaks: flagParam,
  edits: editsParam,
};

describe("URL state", () => {
  it("falls back to defaults for missing or invalid values", () => {
    expect(readParams(SPEC, "?scale=much&order=up&lock=")).toEqual({
      search: "",
      run: null,
      scale: 4,
      lock: null,
      order: "desc",
      breaks: false,
      edits: [],
    });
  });

  it("clamps numbers to their range", () => {
    expect(readParams(SPEC, "?scale=99").scale).toBe(8);
    expect(readParams(SPEC, "?scale=-1").scale).toBe(0);
  });

  it("omits defaults and preserves other parameters when writing", () => {
    const search = writeParams(SPEC, "?other=1&scale=2", { scale: 4, search: "a b&c", breaks: true });
    expect(search).toBe("?other=1&search=a+b%26c&breaks=1");
    expect(writeParams(SPEC, "?scale=2", { scale: 4 })).toBe("");
  });

  it("round-trips", () => {
    const values = {
      search: "wörd, ␣",
      run: "a-b",
      scale: 2.5,
      lock: 0,
      order: "asc",
      breaks: true,
      edits: [{ expert: 12, mode: "scale", strength: 3 }],
    } as const;
    expect(readParams(SPEC, writeParams(SPEC, "", values))).toEqual(values);
  });
});
