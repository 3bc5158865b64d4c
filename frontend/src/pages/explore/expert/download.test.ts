import { describe, expect, it } from "vitest";

import type { Example, ExpertDetail } from "@/api/types";
import { examplesTable, expertJson, type ShownGroup, splitText } from "@/pages/explore/expert/download";

const TOKENS = Array.from({ length: 60 }, (_, i) => (i === 30 ? " peak" : i === 29 ? "\n" : ` t${i}`));

const EXAMPLE: Example = {
  bin: 1,
  rank: 0,
  sequence: 7,
  position: 30,
  activation: 2.5,
  token_ids: TOKENS.map((_, i) => i),
  tokens: TOKENS,
  active: [],
};

const GROUPS: readonly ShownGroup[] = [
  { name: "bin 1", low: 2, high: 4, share: 0.25, examples: [EXAMPLE], duplicates: 3 },
  { name: "random sample", low: null, high: null, share: null, examples: [EXAMPLE], duplicates: 0 },
];

const DETAIL = { row: { expert: 5 } } as unknown as ExpertDetail;

describe("exported examples", () => {
  it("are cut as on screen", () => {
    const widths = (["aligned", "snippet", "full"] as const).map((view) => {
      const { before, token, after } = splitText(EXAMPLE, { view, breaks: false });
      expect(token).toBe(" peak");
      return (before + token + after).length;
    });
    const whole = TOKENS.join("").length;
    expect(widths[2]).toBe(whole);
    expect(widths[0]).toBeLessThan(whole);
    expect(widths[1]).toBeLessThan(widths[0] ?? 0);
  });

  it("have line breaks as on screen", () => {
    expect(splitText(EXAMPLE, { view: "snippet", breaks: false }).before).toMatch(/ $/);
    expect(splitText(EXAMPLE, { view: "snippet", breaks: true }).before).toMatch(/↵/);
    expect(splitText(EXAMPLE, { view: "full", breaks: false }).before).toMatch(/\n$/);
  });

  it("contain bin, activation and position", () => {
    const { columns, rows } = examplesTable(GROUPS, { view: "snippet", breaks: false });
    expect(rows.map((row) => row.length)).toEqual([columns.length, columns.length]);
    expect(columns.slice(4, 7)).toEqual(["activation", "sequence", "position"]);
    expect(rows[0]?.slice(0, 7)).toEqual(["bin 1", "2", "4", "0.25", "2.5", "7", "30"]);
    expect(rows[1]?.slice(0, 4)).toEqual(["random sample", "", "", ""]);
  });
});

describe("an exported expert", () => {
  it("contains the layout of its examples", () => {
    const read = JSON.parse(expertJson("r", DETAIL, GROUPS, { view: "full", breaks: true, seed: 4 })) as {
      shown: unknown;
      row: { expert: number };
      groups: { duplicates: number; examples: { activation: number; position: number }[] }[];
    };
    expect(read.shown).toEqual({ view: "full", breaks: true, seed: 4 });
    expect(read.row.expert).toBe(5);
    expect(read.groups[0]?.duplicates).toBe(3);
    expect(read.groups[0]?.examples[0]).toMatchObject({ activation: 2.5, position: 30 });
  });
});
