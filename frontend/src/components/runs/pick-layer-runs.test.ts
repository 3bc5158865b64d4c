import { describe, expect, it } from "vitest";

import type { RunSummary } from "@/api/types";

import { pickLayerRuns } from "./page-links";

const layer = (name: string, at: number, method: RunSummary["method"] = "mxd") => ({ name, layer: at, method });

describe("runs of all layers", () => {
  it("are one per other layer, in order", () => {
    const others = [layer("b-l4", 4), layer("b-l0", 0)];
    expect(pickLayerRuns({ name: "b-l3", method: "mxd" }, others)).toEqual(["b-l0", "b-l4"]);
    expect(pickLayerRuns({ name: "b-l3", method: "mxd" }, [])).toEqual([]);
  });

  it("prefer the same method and the same name ending", () => {
    const others = [layer("l0-transcoder-whole", 0, "transcoder"), layer("l0", 0), layer("l0-whole", 0)];
    expect(pickLayerRuns({ name: "l3-whole", method: "mxd" }, others)).toEqual(["l0-whole"]);
    expect(pickLayerRuns({ name: "l3", method: "mxd" }, others)).toEqual(["l0"]);
  });
});
