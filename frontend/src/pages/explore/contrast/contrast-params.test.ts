import { expect, test } from "vitest";

import { chosenKinds, OWN_TEXT } from "./contrast-params";

test("two different kinds are chosen on opening", () => {
  const kinds = ["story", "code", "news"];
  expect(chosenKinds(null, null, kinds)).toEqual({ a: "story", b: "code" });
  expect(chosenKinds(null, "story", kinds)).toEqual({ a: "code", b: "story" });
  expect(chosenKinds("news", null, kinds)).toEqual({ a: "news", b: "story" });
  expect(chosenKinds("code", "code", kinds)).toEqual({ a: "code", b: "code" });
  expect(chosenKinds(OWN_TEXT, null, kinds)).toEqual({ a: OWN_TEXT, b: "story" });
});

test("own texts are compared if the run's text has no two kinds", () => {
  expect(chosenKinds(null, null, ["story"])).toEqual({ a: OWN_TEXT, b: OWN_TEXT });
  expect(chosenKinds(null, null, [])).toEqual({ a: OWN_TEXT, b: OWN_TEXT });
  expect(chosenKinds("news", null, [])).toEqual({ a: OWN_TEXT, b: OWN_TEXT });
});

test("a link with kinds that the run's text does not have gets others", () => {
  expect(chosenKinds("poem", "code", ["story", "code"])).toEqual({ a: "story", b: "code" });
  expect(chosenKinds("poem", null, undefined)).toEqual({ a: "poem", b: OWN_TEXT });
});
