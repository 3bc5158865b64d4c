import { expect, test } from "vitest";

import type { CircuitTarget } from "@/api/types";

import { layersParam } from "@/pages/prompt/layers-param";

import { MOST_PROBABLE, targetParam } from "./params";

const TARGETS: readonly CircuitTarget[] = [
  MOST_PROBABLE,
  { kind: "token", token: 12 },
  { kind: "difference", token: 12, other: 7 },
  { kind: "set", tokens: [12, 7] },
  { kind: "continuation", text: " 3-4, and: more" },
  { kind: "expert", run: "my-run/x", expert: 31 },
];

test.each(TARGETS)("a target survives the URL: $kind", (target) => {
  expect(targetParam.read(targetParam.write(target))).toEqual(target);
});

test.each(["x", "any:", "expert:31", "-4"])("an invalid target is the most probable token: %s", (text) => {
  expect(targetParam.read(text)).toEqual(MOST_PROBABLE);
});

test("no other layer differs from the default", () => {
  expect(layersParam.read(layersParam.write([]))).toEqual([]);
  expect(layersParam.read(null)).toBeNull();
});
