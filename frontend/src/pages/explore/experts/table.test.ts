import { expect, test } from "vitest";

import type { Column, ExpertRow } from "@/api/types";

import { tableRow } from "./table";

const column = (key: string, kind: Column["kind"]) => ({ key, kind, shown: ["table"] }) as unknown as Column;
const COLUMNS = [
  column("mean_activation", "number"),
  column("loss_increase", "difference"),
  column("top_tokens", "tokens"),
  column("histogram", "histogram"),
  column("histogram_high", "bound"),
];
const ROW = {
  expert: 7,
  label: "Foxes",
  automatic: null,
  mean_activation: 1.5,
  loss_increase: null,
  top_tokens: [{ text: " fox" }],
  histogram: [1, 2],
  histogram_high: 4,
} as unknown as ExpertRow;

test("visible columns have their values, and what was not measured is empty", () => {
  const row = tableRow(ROW, COLUMNS, []);
  expect(row).toMatchObject({
    expert: 7,
    label: "Foxes",
    automatic_label: "",
    mean_activation: 1.5,
    loss_increase: "",
  });
  expect([row.top_tokens, row.histogram, row.histogram_high]).toEqual(['[" fox"]', "1 2", 4]);
});

test("hidden columns are left out, a histogram with its end", () => {
  expect(Object.keys(tableRow(ROW, COLUMNS, ["histogram", "mean_activation"])).slice(-2)).toEqual([
    "loss_increase",
    "top_tokens",
  ]);
});
