import { describe, expect, it, vi } from "vitest";

import type { Edit } from "./edits";
import { createTrayStore, TRAY_KEY, viewFrom, withEdit, withoutExpert, withRuns } from "./tray";

function memory(tray?: string) {
  const items = new Map(tray === undefined ? [] : [[TRAY_KEY, tray]]);
  return {
    items,
    getItem: (key: string) => items.get(key) ?? null,
    setItem: (key: string, value: string) => void items.set(key, value),
  };
}

const EDIT: Edit = { expert: 5, mode: "scale", strength: 4 };
const run = (name: string, layer: number, model = "lm") => ({ name, layer, language_model_name: model });
const RUNS = [run("a", 1), run("a-transcoder", 1), run("b", 2), run("foreign", 2, "other")];

describe("tray", () => {
  it("starts with this tab's edits, else with the shared ones, and is referentially stable", () => {
    const store = createTrayStore(memory("a/5:scale:4"), memory("a/9:ablate"));
    expect(store.read()).toEqual([{ ...EDIT, run: "a" }]);
    expect(store.read()).toBe(store.read());
    expect(createTrayStore(memory(), memory("a/9:ablate")).read()[0]?.expert).toBe(9);
    expect(createTrayStore(memory(""), memory("a/9:ablate")).read()).toEqual([]);
  });

  it("takes over a link's edits without changing those of other tabs", () => {
    const shared = memory("a/9:ablate");
    expect(createTrayStore(memory("b/7:ablate"), shared, [EDIT]).read()).toEqual([EDIT]);
    expect(shared.items.get(TRAY_KEY)).toBe("a/9:ablate");
  });

  it("shares with other tabs only what is meant for them", () => {
    const shared = memory();
    const [here, there] = [createTrayStore(memory(), shared), createTrayStore(memory(), shared)];
    const listener = vi.fn();
    there.subscribe(listener);
    here.write([{ ...EDIT, run: "a" }]);
    there.follow();
    expect(there.read()).toEqual([]);
    here.share([{ ...EDIT, run: "b" }]);
    there.follow();
    expect(there.read()).toEqual([{ ...EDIT, run: "b" }]);
    expect(listener).toHaveBeenCalledTimes(2);
  });

  it("follows to another run: edits of other layers are kept, those that cannot be combined wait", () => {
    const edits = withRuns([EDIT, { ...EDIT, run: "b" }, { ...EDIT, run: "foreign" }], "a");
    const names = (current: (typeof RUNS)[number]) => {
      const { shown, hidden } = viewFrom(edits, current, RUNS);
      return [shown.map((edit) => edit.run), hidden.map((edit) => edit.run)];
    };
    expect(names(run("a", 1))).toEqual([[undefined, "b"], ["foreign"]]);
    expect(names(run("b", 2))).toEqual([["a", undefined], ["foreign"]]);
    expect(names(run("a-transcoder", 1))).toEqual([["b"], ["a", "foreign"]]);
    expect(names(run("foreign", 2, "other"))).toEqual([[undefined], ["a", "b"]]);
  });

  it("does not show edits of a run that was removed", () => {
    expect(viewFrom([{ ...EDIT, run: "gone" }], run("a", 1), RUNS).shown).toEqual([]);
  });

  it("holds one edit per expert, in insertion order", () => {
    const two = withEdit([EDIT], { expert: 9, mode: "ablate", strength: 1 });
    expect(two.map((edit) => edit.expert)).toEqual([5, 9]);
    expect(withEdit(two, { ...EDIT, strength: 2 })[0]?.strength).toBe(2);
    expect(withoutExpert(two, 5).map((edit) => edit.expert)).toEqual([9]);
  });
});
