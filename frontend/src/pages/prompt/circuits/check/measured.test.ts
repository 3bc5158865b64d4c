import { expect, test } from "vitest";

import type { CircuitResponse } from "@/api/types";

import { checkLayers, comparison, contradiction, describeLayer, isWeak, mismatch } from "./measured";

test("a measured effect is compared in sign and size", () => {
  expect(comparison(0.4, 0.1)).toContain("0.25 times its size");
  expect(comparison(-0.4, 0.1)).toContain("opposite sign");
  expect(comparison(0, 0.1)).toContain("predicts no effect");
});

test("effects of the opposite sign, and of a size far from the predicted one, are marked", () => {
  const marks = [0.2, -0.2, -0.5, -1.5, -0.05].map((change) => mismatch({ effect: 0.4 }, change));
  expect(marks).toEqual(["≠", null, null, "×3.8", "×0.13"]);
  expect(mismatch({ effect: 0.4 }, undefined)).toBeNull();
});

test("a box is marked if ablation contradicts its expert, and a supernode with the number of such experts", () => {
  const nodes = [
    { kind: "expert", effect: 0.4 },
    { kind: "expert", effect: 0.4 },
    { kind: "mlp", effect: 0.4 },
  ];
  const response = { graph: { nodes }, ids: ["a", "b", "c"] } as unknown as CircuitResponse;
  const measured = new Map([
    ["a", 0.2],
    ["b", -0.4],
  ]);
  expect(contradiction(response, [0], measured)).toEqual({ badge: "≠", text: "measured opposite sign" });
  expect(contradiction(response, [1], measured)).toBeNull();
  expect(contradiction(response, [0, 1, 2], measured)?.badge).toBe("1 ≠");
});

test("a layer's change is described by its share, or as opposite", () => {
  expect(describeLayer({ layer: 4, experts: 3, share: 0.12 })).toBe("layer 4, 12 %");
  expect(describeLayer({ layer: 4, experts: 3, share: -0.8 })).toContain("opposite sign");
});

test("a layer is weak if little of its predicted change is measured", () => {
  const nodes = [
    { layer: 0, effect: 2 },
    { layer: 0, effect: -1 },
    { layer: 3, effect: 1 },
    { layer: null, effect: 1 },
  ];
  const response = { graph: { nodes }, ids: ["a", "b", "c", "d"] } as unknown as CircuitResponse;
  const measured = new Map([
    ["a", -0.4],
    ["b", -0.1],
    ["c", -0.9],
  ]);
  const layers = checkLayers(response, measured);
  expect(layers.map(({ layer, experts, share }) => [layer, experts, Number(share.toFixed(3))])).toEqual([
    [0, 2, 0.1],
    [3, 1, 0.9],
  ]);
  expect(layers.map(isWeak)).toEqual([true, false]);
});
