import { expect, test } from "vitest";

import { readParams, writeParams } from "@/hooks/use-url-state";

import { CIRCUIT_PARAMS } from "./circuit-params";

test("nodes and supernodes survive the URL, whatever their names", () => {
  const groups = [{ name: "50 %, ~girl", nodes: ["3_560_7", "E_12_4"] }];
  const search = writeParams(CIRCUIT_PARAMS, "?run=a", { ablated: ["3_560_7", "1_2_6"], groups });
  expect(search).toContain("?run=a&ablated=3_560_7,1_2_6&groups=");
  expect(readParams(CIRCUIT_PARAMS, search)).toMatchObject({ ablated: ["3_560_7", "1_2_6"], groups });
});

test("groups without a node are dropped", () => {
  expect(readParams(CIRCUIT_PARAMS, "?groups=empty,one~a").groups).toEqual([{ name: "one", nodes: ["a"] }]);
});

test("no layers, all layers and some layers are distinct", () => {
  for (const layers of [null, [], ["one", "other"]]) {
    expect(readParams(CIRCUIT_PARAMS, writeParams(CIRCUIT_PARAMS, "", { layers })).layers).toEqual(layers);
  }
});
