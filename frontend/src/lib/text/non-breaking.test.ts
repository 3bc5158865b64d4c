import { expect, test } from "vitest";

import { nonBreaking } from "./non-breaking";

test("percent signs and arrows stay with their numbers", () => {
  expect(nonBreaking("from 2 % → 1 % on all")).toBe("from 2\u00a0%\u00a0→\u00a01\u00a0% on all");
});
