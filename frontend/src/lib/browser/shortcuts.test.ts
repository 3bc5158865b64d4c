import { describe, expect, it } from "vitest";

import { keyCap, shortcutOf, SHORTCUTS } from "./shortcuts";

const PLAIN = { ctrlKey: false, metaKey: false, altKey: false };

describe("shortcuts", () => {
  it("have unique keys", () => {
    const keys = Object.values(SHORTCUTS).map((shortcut) => shortcut.key);
    expect(new Set(keys).size).toBe(keys.length);
  });

  it("are found by key, ignoring case but not modifiers", () => {
    expect(shortcutOf({ ...PLAIN, key: "J" })).toBe("next");
    expect(shortcutOf({ ...PLAIN, key: "?" })).toBe("help");
    expect(shortcutOf({ ...PLAIN, key: "r", ctrlKey: true })).toBeNull();
    expect(shortcutOf({ ...PLAIN, key: "q" })).toBeNull();
  });

  it("have key cap labels", () => {
    expect(keyCap("next")).toBe("J");
    expect(keyCap("release")).toBe("Esc");
  });
});
