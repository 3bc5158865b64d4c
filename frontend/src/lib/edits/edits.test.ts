import { describe, expect, it } from "vitest";

import { describeEdit, formatEdits, parseEdits, strengthDigits, unreadEdits } from "./edits";

describe("edits", () => {
  it("round-trip", () => {
    const text = "52940:scale:4,7316:add:-2.5,63118:set:0.8,81346:ablate";
    expect(formatEdits(parseEdits(text))).toBe(text);
  });

  it("keep their conditions, also stop texts with commas", () => {
    const text = '7:add:3@first:20,other-run/9:ablate@when:x/4>0@until:"a, b",40:ablate';
    const edits = parseEdits(text);
    expect(edits.map((edit) => edit.when?.until ?? edit.when?.first)).toEqual([20, "a, b", undefined]);
    expect(formatEdits(edits)).toBe(text);
    expect(parseEdits("7:add:3@sometimes")).toEqual([]);
  });

  it("drop invalid edits, and keep the last one of an expert", () => {
    expect(parseEdits("x:scale:1,5:melt:1,6:scale:no,7:scale:2,7:add:1,")).toEqual([
      { expert: 7, mode: "add", strength: 1 },
    ]);
    expect(parseEdits("")).toEqual([]);
    expect(unreadEdits('x:scale:1,5:melt:1,7:add:1@until:"a, b",6:scale:no')).toEqual([
      "x:scale:1",
      "5:melt:1",
      "6:scale:no",
    ]);
  });

  it("are described with the sign of their mode", () => {
    expect(describeEdit({ mode: "scale", strength: 4 })).toBe("× 4.0");
    expect(describeEdit({ mode: "add", strength: 2.5 })).toBe("+2.5");
    expect(describeEdit({ mode: "add", strength: 1.75 })).toBe("+1.75");
    expect(describeEdit({ mode: "add", strength: -1 })).toBe("−1.0");
    expect(describeEdit({ mode: "set", strength: 0.8 })).toBe("= 0.8");
    expect(describeEdit({ mode: "ablate", strength: 1 })).toBe("ablated");
  });

  it("show all typed decimals", () => {
    expect([4, 0.85, -2.5, 0.12345].map(strengthDigits)).toEqual([1, 2, 1, 3]);
  });
});
