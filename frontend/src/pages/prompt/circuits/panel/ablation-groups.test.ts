import { expect, test } from "vitest";

import type { CircuitNode, CircuitResponse } from "@/api/types";
import { readParams } from "@/hooks/use-url-state";
import { STEERING_PARAMS } from "@/pages/steer/steering/steering-params";

import { steeringUrl, ablatedExperts } from "./ablation-groups";

const expert = (run: string, position: number, id: number): CircuitNode => ({
  kind: "expert",
  position,
  layer: 1,
  run,
  expert: id,
  coefficient: 1,
  influence: 0.1,
  direct: 0,
  effect: 0,
  traced: true,
});

const RESPONSE = {
  ids: ["token", "a", "b", "c"],
  graph: {
    tokens: [
      { id: 0, text: "<s>", start: true },
      { id: 1, text: "One", start: false },
      { id: 2, text: " day", start: false },
    ],
    nodes: [
      { ...expert("mine", 1, 1), kind: "embedding", run: null, expert: null },
      expert("mine", 2, 7),
      expert("mine", 1, 7),
      expert("late", 2, 9),
    ],
  },
} as unknown as CircuitResponse;

test("the Steering URL ablates every expert on its tokens and names runs of other layers", () => {
  const address = steeringUrl(RESPONSE, ablatedExperts(RESPONSE, ["a", "b", "c"]), "mine");
  expect(address.startsWith("/steering?run=mine&")).toBe(true);
  const params = readParams(STEERING_PARAMS, address.slice("/steering".length));
  expect(params).toMatchObject({ prompt: "One day", scope: "chosen", at: [1, 2] });
  expect(params.edits).toEqual([
    { expert: 7, mode: "ablate", strength: 1 },
    { expert: 9, mode: "ablate", strength: 1, run: "late" },
  ]);
});

test("only experts of the graph are ablated", () => {
  expect(ablatedExperts(RESPONSE, ["token", "a", "none"])).toEqual([{ run: "mine", position: 2, expert: 7 }]);
});
