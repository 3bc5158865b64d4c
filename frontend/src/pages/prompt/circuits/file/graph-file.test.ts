import { expect, test } from "vitest";

import { fileName, withMarks } from "./graph-file";

const FILE = {
  metadata: { slug: "once-upon" },
  qParams: { linkType: "both", pinnedIds: ["old"] },
  nodes: [{ node_id: "3_7_1", clerp: "foxes" }, { node_id: "E_9_1" }],
  links: [],
};

test("marks and measured effects are added, and nothing else changes", () => {
  const groups = [{ name: "animals", nodes: ["3_7_1", "E_9_1"] }];
  expect(withMarks(FILE, { pinned: ["3_7_1"], groups }, new Map([["3_7_1", -0.5]]))).toEqual({
    metadata: { slug: "once-upon" },
    qParams: { linkType: "both", pinnedIds: ["3_7_1"], supernodes: [["animals", "3_7_1", "E_9_1"]] },
    nodes: [{ node_id: "3_7_1", clerp: "foxes", measured_effect: -0.5 }, { node_id: "E_9_1" }],
    links: [],
  });
});

test("files are named after their slug", () => {
  expect(fileName(FILE)).toBe("once-upon.json");
  expect(fileName({})).toBe("graph.json");
});
