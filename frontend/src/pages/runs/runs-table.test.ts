import { describe, expect, it } from "vitest";

import type { RunSummary } from "@/api/types";

import { groupedRuns, isBest, sortedRuns } from "./runs-table";

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

  it("have winners among the runs of one MLP", () => {
    const recovered = (value: number, width = 0.05) =>
      ({
        normalized_mse: 1 - value,
        loss_recovered: { value, low: value - width, high: value + width },
      }) as RunSummary["held_out"];
    const runs = [
      run("a", 1, { held_out: recovered(0.5) }),
      run("b", 1, { held_out: recovered(0.7) }),
      run("c", 2, { held_out: recovered(0.8) }),
      run("d", 1),
    ];
    expect(runs.filter((one) => isBest(one, "loss_recovered", runs)).map(({ name }) => name)).toEqual(["b"]);
    expect(runs.filter((one) => isBest(one, "held_out_mse", runs)).map(({ name }) => name)).toEqual(["b"]);
    const close = [run("a", 1, { held_out: recovered(0.5, 0.2) }), run("b", 1, { held_out: recovered(0.7) })];
    expect(close.filter((one) => isBest(one, "loss_recovered", close))).toEqual([]); // their intervals overlap
  });

  it("come last in both orders if they were not measured", () => {
    const runs = [run("a", 1), run("b", 1, { held_out: heldOut(0.3) }), run("c", 1, { held_out: heldOut(0.1) })];
    const names = (order: "asc" | "desc") => sortedRuns(runs, "held_out_mse", order).map(({ name }) => name);
    expect(names("asc")).toEqual(["c", "b", "a"]);
    expect(names("desc")).toEqual(["b", "c", "a"]);
  });
});
