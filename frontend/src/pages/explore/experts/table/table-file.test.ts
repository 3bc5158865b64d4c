import { expect, test } from "vitest";

import type { ExpertRow } from "@/api/types";
import { OPTIONAL_COLUMNS } from "@/pages/explore/experts/experts-params";

import { tableColumns, tableRow } from "./table-file";

test("every visible column of a measured expert has its value", () => {
  const row = {
    expert: 7,
    label: "Foxes",
    automatic: { label: "“fox”", balanced_accuracy: 0.9, precision: 0.8, recall: 0.7 },
    density: 0.01,
    mean_activation: 1.5,
    max_activation: 3.25,
    entropy: 2,
    loss_increase: 0.1,
    kl_amplified: 0.2,
    recurrence: 0.8,
    top_tokens: [{ text: " fox" }],
    histogram: [1, 2],
    histogram_high: 4,
  } as unknown as ExpertRow;
  const columns = tableColumns(OPTIONAL_COLUMNS);
  const cells = tableRow(row, columns);
  expect(cells).not.toContain("");
  const at = (column: (typeof columns)[number]) => cells[columns.indexOf(column)];
  expect([at("mean_activation"), at("max_activation"), at("top_tokens"), at("histogram_high")]).toEqual([
    1.5,
    3.25,
    '[" fox"]',
    4,
  ]);
});
