import { describe, expect, it } from "vitest";

import type { RunSummary } from "@/api/types";

import { groupedRuns, sortedRuns } from "./runs-table";

const run = (name: string, layer: number, rest: Partial<RunSummary> = {}) =>
  ({
    name,
    layer,
    language_model: "lm",
    language_model_name: "lm",
    status: "finished",
    held_out: null,
    ...rest,
  }) as RunSummary;
const heldOut = (error: number) => ({ normalized_mse: error }) as NonNullable<RunSummary["held_out"]>;

describe("runs", () => {
  it("are grouped by MLP, those in training first", () => {
    const groups = groupedRuns([run("b", 9), run("a", 9), run("c", 2), run("d", 4, { status: "training" })]);
    expect(groups.map(({ layer, runs }) => [layer, runs.map(({ name }) => name)])).toEqual([
      [4, ["d"]],
      [2, ["c"]],
      [9, ["a", "b"]],
    ]);
    const models = groupedRuns([run("b", 1, { language_model: "x", language_model_name: "x" }), run("a", 1)]);
    expect(models.map(({ model }) => model)).toEqual(["lm", "x"]);
  });

  it("come last in both orders if they were not measured", () => {
    const runs = [run("a", 1), run("b", 1, { held_out: heldOut(0.3) }), run("c", 1, { held_out: heldOut(0.1) })];
    const names = (order: "asc" | "desc") => sortedRuns(runs, "held_out_mse", order).map(({ name }) => name);
    expect(names("asc")).toEqual(["c", "b", "a"]);
    expect(names("desc")).toEqual(["b", "c", "a"]);
  });
});
