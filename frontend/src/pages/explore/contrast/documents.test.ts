import { expect, test } from "vitest";

import { splitDocuments, textOfFile } from "./documents";

test("blank lines separate documents", () => {
  expect(splitDocuments("one\nstill one\n\n  \ntwo\n \nthree\n")).toEqual(["one\nstill one", "two", "three"]);
  expect(splitDocuments(" \n\n ")).toEqual([]);
});

test("each line of a .jsonl file is one document", () => {
  const content = '{"text": "one\\n\\nstill one"}\n\n{"kind": "x", "text": "two"}\n"three"\n';
  expect(splitDocuments(textOfFile("a.jsonl", content))).toEqual(["one\nstill one", "two", "three"]);
  expect(textOfFile("a.txt", "plain")).toBe("plain");
});

test("a line without text is named", () => {
  expect(() => textOfFile("a.jsonl", '{"text": "one"}\n{"body": 1}')).toThrow("Line 2 has no text");
  expect(() => textOfFile("a.jsonl", "{")).toThrow("Line 1 has no text");
});
