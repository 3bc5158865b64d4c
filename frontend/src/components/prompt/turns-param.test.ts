import { describe, expect, it } from "vitest";

import { haveDiverged, isUnknownChat, originalTurns, steeredTurns, turnsParam } from "./turns-param";

describe("chat turns in the URL", () => {
  it("round-trip", () => {
    const turns = [
      { role: "system", text: "Be brief." },
      { role: "user", text: 'a "quote"\nand a line' },
    ] as const;
    expect(turnsParam.read(turnsParam.write(turns))).toEqual(turns);
    expect(turnsParam.write([])).toBeNull();
  });

  it("keep the replies of both chats", () => {
    const turns = [
      { role: "user", text: "Hi" },
      { role: "assistant", text: "We greet you.", original: "Hello!" },
    ] as const;
    expect(turnsParam.read(turnsParam.write(turns))).toEqual(turns);
    expect(steeredTurns(turns)[1]).toEqual({ role: "assistant", text: "We greet you." });
    expect(originalTurns(turns)[1]).toEqual({ role: "assistant", text: "Hello!" });
    expect([haveDiverged(turns), haveDiverged(turns.slice(0, 1))]).toEqual([true, false]);
  });

  it("leave only a key in the URL once they are long", () => {
    const turns = [{ role: "user", text: "long ".repeat(80) }] as const;
    const key = turnsParam.write(turns) ?? "";
    expect(key.length).toBeLessThan(20);
    expect(turnsParam.read(key)).toEqual(turns);
    expect([isUnknownChat(key), isUnknownChat("elsewhere"), isUnknownChat("[]")]).toEqual([false, true, false]);
  });

  it("drop invalid turns", () => {
    expect(turnsParam.read('[["pirate","arr"],["user",7],["user","yes"]]')).toEqual([{ role: "user", text: "yes" }]);
    expect(turnsParam.read("nonsense")).toEqual([]);
    expect(turnsParam.read(null)).toEqual([]);
  });
});
