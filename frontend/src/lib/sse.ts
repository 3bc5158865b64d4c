/** Server-sent events, taken apart as they arrive: chunks may end anywhere, even inside a line ending. */

export interface ServerSentEvent {
  /** `message` where the server names none. */
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

/** Feed it text; it gives back the events that are complete. One parser a stream. */
export function createSseParser(): (text: string) => readonly ServerSentEvent[] {
  let rest = "";
  let draft: Draft = { event: "message", data: [] };
  return (text) => {
    const events: ServerSentEvent[] = [];
    rest += text;
    // A lone \r at the very end may be half of \r\n; it waits for the next chunk.
    for (let end = /\r\n|\n|\r(?!$)/.exec(rest); end !== null; end = /\r\n|\n|\r(?!$)/.exec(rest)) {
      const line = rest.slice(0, end.index);
      rest = rest.slice(end.index + end[0].length);
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
