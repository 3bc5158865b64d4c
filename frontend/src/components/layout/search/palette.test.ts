import { expect, test } from "vitest";

import { matches, pageCommands, steerCommand } from "./palette";

test("an edit is typed with or without its strength", () => {
  expect(steerCommand("steer 46 +2", 100)).toMatchObject({ expert: 46, mode: "add", strength: 2 });
  expect(steerCommand("Steer #46 −1.5", 100)).toMatchObject({ expert: 46, strength: -1.5 });
  expect(steerCommand("steer 46", 100)?.strength).toBeGreaterThan(0);
  expect(["steer 100", "steer", "steer me 2", "46 +2"].map((text) => steerCommand(text, 100))).toEqual([
    null,
    null,
    null,
    null,
  ]);
});

test("pages are found by the beginnings of their words", () => {
  const named = (text: string) => pageCommands(text, (page) => `/${page}`).map(({ url }) => url);
  expect(named("sess")).toEqual(["/sessions"]);
  expect(named("st ch")).toEqual(["/chat"]);
  expect(named("")).toContain("/glossary");
  expect(matches("smollm2-l22", "l22")).toBe(true);
});
