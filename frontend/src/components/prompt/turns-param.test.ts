import { describe, expect, it } from "vitest";

import { turnsParam } from "./turns-param";

describe("chat turns in the URL", () => {
  it("round-trip", () => {
    const turns = [
      { role: "system", text: "Be brief." },
      { role: "user", text: 'a "quote"\nand a line' },
    ] as const;
    expect(turnsParam.read(turnsParam.write(turns))).toEqual(turns);
    expect(turnsParam.write([])).toBeNull();
  });

  it("drop invalid turns", () => {
    expect(turnsParam.read('[["pirate","arr"],["user",7],["user","yes"]]')).toEqual([{ role: "user", text: "yes" }]);
    expect(turnsParam.read("nonsense")).toEqual([]);
    expect(turnsParam.read(null)).toEqual([]);
  });
});
