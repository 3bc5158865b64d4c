import { describe, expect, it } from "vitest";

import type { RunSummary } from "@/api/types";

import { oneOfEachLayer } from "./one-of-each-layer";

const layer = (name: string, at: number, method: RunSummary["method"] = "mxd") => ({ name, layer: at, method });

describe("runs that make a whole language model", () => {
  it("are one of each other layer, in their order", () => {
    const others = [layer("b-l4", 4), layer("b-l0", 0)];
    expect(oneOfEachLayer({ name: "b-l3", method: "mxd" }, others)).toEqual(["b-l0", "b-l4"]);
    expect(oneOfEachLayer({ name: "b-l3", method: "mxd" }, [])).toEqual([]);
  });

  it("are of the same method, and of the same set", () => {
    const others = [layer("l0-transcoder-whole", 0, "transcoder"), layer("l0", 0), layer("l0-whole", 0)];
    expect(oneOfEachLayer({ name: "l3-whole", method: "mxd" }, others)).toEqual(["l0-whole"]);
    expect(oneOfEachLayer({ name: "l3", method: "mxd" }, others)).toEqual(["l0"]);
  });
});
