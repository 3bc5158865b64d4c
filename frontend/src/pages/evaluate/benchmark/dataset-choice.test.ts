import { expect, test } from "vitest";

import { datasetChoice } from "./dataset-choice";

const SEVENTH = [5, 26, 49, 58, 65, 72, 79, 87, 96, 114, 121, 128, 135, 142, 149, 156, 163].map((n) => `${n}_name`);

test("evenly spaced data sets are described by their spacing", () => {
  expect(datasetChoice(SEVENTH)).toBe("17 of 113 data sets, every seventh in the order of their numbers");
  expect(datasetChoice(SEVENTH.toReversed())).toBe(datasetChoice(SEVENTH));
});

test("nothing is said about the order of others", () => {
  expect(datasetChoice(SEVENTH.slice(0, 5))).toBe("5 of 113 data sets, chosen by name");
  expect(datasetChoice(["105_click_bait"])).toBe("1 of 113 data sets, chosen by name");
  expect(datasetChoice(["mine", "5_name"])).toBe("2 of 113 data sets, chosen by name");
});
