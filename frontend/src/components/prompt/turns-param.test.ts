import { describe, expect, it } from "vitest";

import { turnsParam } from "./turns-param";

describe("chat turns in an address", () => {
  it("come back as they were written", () => {
    const turns = [
      { role: "system", text: "Be brief." },
      { role: "user", text: 'a "quote"\nand a line' },
    ] as const;
    expect(turnsParam.read(turnsParam.write(turns))).toEqual(turns);
    expect(turnsParam.write([])).toBeNull();
  });

  it("drop what nobody says", () => {
    expect(turnsParam.read('[["pirate","arr"],["user",7],["user","yes"]]')).toEqual([{ role: "user", text: "yes" }]);
    expect(turnsParam.read("nonsense")).toEqual([]);
    expect(turnsParam.read(null)).toEqual([]);
  });
});
