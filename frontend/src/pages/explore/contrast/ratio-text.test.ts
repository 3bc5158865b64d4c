import { expect, test } from "vitest";

import { ratioText, singleUnit } from "./ratio-text";

const contrast = (active_a: number, active_b: number, value: number, low: number, high: number) => ({
  expert: 1,
  active_a,
  active_b,
  units_a: 1,
  units_b: 1,
  density_a: 0,
  density_b: 0,
  ratio: { value, low, high },
  activation_ratio: null,
  p_value: 0,
  q_value: 0,
});

test("the ratio is above 1 in its direction", () => {
  expect(ratioText(contrast(445, 8, 52.4, 20.2, 135.8), "a")).toEqual({ value: "× 52", interval: "20 to 136" });
  expect(ratioText(contrast(17, 1001, 0.0175, 0.005, 0.05), "b")).toEqual({ value: "× 57", interval: "20 to 200" });
  expect(ratioText(contrast(70, 10, 7.02, 2.7, 99.7), "a")).toEqual({ value: "× 7.0", interval: "2.7 to 100" });
});

test("an expert that is active in one text only has no ratio", () => {
  expect(ratioText(contrast(80, 0, 161, 11.6, 2230), "a")).toEqual({ value: "only in A", interval: "× 12 or more" });
  expect(ratioText(contrast(0, 80, 0.005, 0.0004, 0.08), "b").value).toBe("only in B");
});

test("a density that rests on one document is called unreliable", () => {
  const found = contrast(80, 3, 20, 2, 200);
  expect(singleUnit({ ...found, units_a: 12 }, "document")).toBe("only 1 document in B");
  expect(singleUnit(found, "sequence")).toBe("only 1 sequence in A and B");
  expect(singleUnit({ ...found, units_a: 12, units_b: 2 }, "document")).toBeNull();
  expect(singleUnit({ ...found, units_a: 12, units_b: 0 }, "document")).toBeNull();
});
