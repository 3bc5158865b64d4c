import { describe, expect, it } from "vitest";

import { createSseParser, type ServerSentEvent } from "./sse";

function parse(...chunks: string[]): readonly ServerSentEvent[] {
  const feed = createSseParser();
  return chunks.flatMap((chunk) => feed(chunk));
}

describe("server-sent events", () => {
  it("reads events with and without a name", () => {
    expect(parse('event: metric\ndata: {"step":1}\n\ndata: x\n\n')).toEqual([
      { event: "metric", data: '{"step":1}' },
      { event: "message", data: "x" },
    ]);
  });

  it("are independent of chunk boundaries", () => {
    const text = ": hello\r\nevent: a\r\ndata: 1\r\ndata: 2\r\n\r\ndata: ü 😀\n\n";
    const whole = parse(text);
    expect(whole).toEqual([
      { event: "a", data: "1\n2" },
      { event: "message", data: "ü 😀" },
    ]);
    for (let cut = 0; cut <= text.length; cut++) expect(parse(text.slice(0, cut), text.slice(cut))).toEqual(whole);
  });

  it("buffer unfinished events and drop events without data", () => {
    expect(parse("data: half\n")).toEqual([]);
    expect(parse("event: ping\n\ndata: x\n\n")).toEqual([{ event: "message", data: "x" }]);
  });
});
