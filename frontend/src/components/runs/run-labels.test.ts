import { describe, expect, it } from "vitest";

import { encoderActivation, layerLabel, mixingName } from "./run-labels";

const run = (name: string, layer: number, method: "mxd" | "transcoder") => ({ name, layer, method });

describe("the label of a layer", () => {
  const runs = [
    run("a", 4, "mxd"),
    run("b", 10, "mxd"),
    run("c", 10, "transcoder"),
    run("d", 16, "mxd"),
    run("e", 16, "mxd"),
  ];

  it("names the method or the run only where the number is not enough", () => {
    expect(runs.map((one) => layerLabel(one, runs))).toEqual(["4", "10 MxD", "10 Transcoder", "d", "e"]);
  });
});

describe("the facts of a method", () => {
  it("name an activation function only if the layer has one", () => {
    expect(encoderActivation({ method: "mxd", activation: "silu" })).toBe("silu");
    for (const method of ["hidden-mxd", "molt", "transcoder"] as const) {
      expect(encoderActivation({ method, activation: "silu" })).toBeNull();
    }
  });

  it("do not call a learned constant the paper's form", () => {
    expect(mixingName({ method: "mxd", mixing: "paper" })).toBe("the paper’s exact form");
    expect(mixingName({ method: "hidden-mxd", mixing: "paper" })).toBe("with a learned constant part");
    expect(mixingName({ method: "hidden-mxd", mixing: "centred" })).toBe("centred");
    expect(mixingName({ method: "molt", mixing: null })).toBeNull();
  });
});
