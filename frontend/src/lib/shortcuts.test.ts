import { describe, expect, it } from "vitest";

import { keyCap, shortcutOf, SHORTCUTS } from "./shortcuts";

const PLAIN = { ctrlKey: false, metaKey: false, altKey: false };

describe("shortcuts", () => {
  it("have a key of their own each", () => {
    const keys = Object.values(SHORTCUTS).map((shortcut) => shortcut.key);
    expect(new Set(keys).size).toBe(keys.length);
  });

  it("are found by key, whatever the case, and not with a modifier", () => {
    expect(shortcutOf({ ...PLAIN, key: "J" })).toBe("previous");
    expect(shortcutOf({ ...PLAIN, key: "?" })).toBe("help");
    expect(shortcutOf({ ...PLAIN, key: "r", ctrlKey: true })).toBeNull();
    expect(shortcutOf({ ...PLAIN, key: "q" })).toBeNull();
  });

  it("are printed as on a key cap", () => {
    expect(keyCap("next")).toBe("K");
    expect(keyCap("release")).toBe("Esc");
  });
});
