import { expect, test } from "vitest";

import { readParams, writeParams } from "@/hooks/use-url-state";

import { CIRCUIT_PARAMS } from "./circuit-params";

test("selected experts are written as position, layer and expert", () => {
  const search = writeParams(CIRCUIT_PARAMS, "?run=a", {
    prompt: "one day",
    chosen: [
      { position: 5, layer: 3, expert: 560 },
      { position: 6, layer: 1, expert: 2 },
    ],
  });
  expect(search).toBe("?run=a&prompt=one+day&chosen=5.3.560,6.1.2");
  expect(readParams(CIRCUIT_PARAMS, search).chosen).toHaveLength(2);
});

test("invalid parts are dropped", () => {
  expect(readParams(CIRCUIT_PARAMS, "?chosen=5.3,x,1.2.3").chosen).toEqual([{ position: 1, layer: 2, expert: 3 }]);
});

test("no layers, all layers and some layers are distinct", () => {
  for (const layers of [null, [], ["one", "other"]]) {
    expect(readParams(CIRCUIT_PARAMS, writeParams(CIRCUIT_PARAMS, "", { layers })).layers).toEqual(layers);
  }
});
