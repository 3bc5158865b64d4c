import { describe, expect, it } from "vitest";

import { layerLabel } from "./run-labels";

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
