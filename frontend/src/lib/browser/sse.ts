/** Incremental parser of server-sent events. Chunks may end anywhere, even within a line ending. */

export interface ServerSentEvent {
  /** `message` if the server names none. */
  readonly event: string;
  readonly data: string;
}

interface Draft {
  event: string;
  data: string[];
}

function readLine(line: string, draft: Draft): void {
  if (line.startsWith(":")) return;
  const colon = line.indexOf(":");
  const field = colon === -1 ? line : line.slice(0, colon);
  const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
  if (field === "event") draft.event = value;
  if (field === "data") draft.data.push(value);
}

/** Create a parser, one per stream. Feed it text; it returns the events completed so far. */
export function createSseParser(): (text: string) => readonly ServerSentEvent[] {
  let buffer = "";
  let draft: Draft = { event: "message", data: [] };
  return (text) => {
    const events: ServerSentEvent[] = [];
    buffer += text;
    // A trailing \r may be half of \r
    // , so it waits for the next chunk.
    for (let end = /\r\n|\n|\r(?!$)/.exec(buffer); end !== null; end = /\r\n|\n|\r(?!$)/.exec(buffer)) {
      const line = buffer.slice(0, end.index);
      buffer = buffer.slice(end.index + end[0].length);
      if (line !== "") {
        readLine(line, draft);
        continue;
      }
      if (draft.data.length > 0) events.push({ event: draft.event, data: draft.data.join("\n") });
      draft = { event: "message", data: [] };
    }
    return events;
  };
}
