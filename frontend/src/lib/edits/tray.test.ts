import { describe, expect, it, vi } from "vitest";

import type { Edit } from "./edits";
import { createTrayStore, withEdit, withoutExpert } from "./tray";

function memory(initial: Record<string, string> = {}) {
  const items = new Map(Object.entries(initial));
  return {
    items,
    getItem: (key: string) => items.get(key) ?? null,
    setItem: (key: string, value: string) => void items.set(key, value),
    removeItem: (key: string) => void items.delete(key),
  };
}

const EDIT: Edit = { expert: 5, mode: "scale", strength: 4 };

describe("tray", () => {
  it("is read from storage once and referentially stable", () => {
    const store = createTrayStore(memory({ "mxd-tray:a": "5:scale:4" }));
    expect(store.read("a")).toEqual([EDIT]);
    expect(store.read("a")).toBe(store.read("a"));
    expect(store.read("b")).toEqual([]);
  });

  it("takes over a link's edits once", () => {
    const link = { run: "a", edits: [EDIT] };
    const storage = memory({ "mxd-tray:a": "9:ablate", "mxd-tray:b": "7:ablate" });
    const store = createTrayStore(storage, link);
    expect(store.read(null)).toEqual([]);
    expect(store.read("b")[0]?.expert).toBe(7);
    expect(store.read("a")).toEqual([EDIT]);
    expect(storage.items.get("mxd-tray:a")).toBe("5:scale:4");
  });

  it("gives a link's edits without a run to the first run read", () => {
    const store = createTrayStore(memory(), { run: null, edits: [EDIT] });
    expect(store.read(null)).toEqual([EDIT]);
    expect(store.read("a")).toEqual([EDIT]);
    expect(store.read("b")).toEqual([]);
    expect(store.read(null)).toEqual([]);
  });

  it("writes through, notifies listeners, and removes empty lists from storage", () => {
    const storage = memory();
    const store = createTrayStore(storage);
    const listener = vi.fn();
    const stop = store.subscribe(listener);
    store.write("a", [EDIT]);
    expect(storage.items.get("mxd-tray:a")).toBe("5:scale:4");
    store.write("a", []);
    expect(storage.items.size).toBe(0);
    stop();
    store.write("a", [EDIT]);
    expect(listener).toHaveBeenCalledTimes(2);
  });

  it("holds one edit per expert, in insertion order", () => {
    const two = withEdit([EDIT], { expert: 9, mode: "ablate", strength: 1 });
    expect(two.map((edit) => edit.expert)).toEqual([5, 9]);
    expect(withEdit(two, { ...EDIT, strength: 2 })[0]?.strength).toBe(2);
    expect(withoutExpert(two, 5).map((edit) => edit.expert)).toEqual([9]);
  });
});
