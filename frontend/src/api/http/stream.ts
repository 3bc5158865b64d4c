/** Server-sent event streams as async generators. Abort the signal to stop one. */

import type {
  AblationEvent,
  ContrastEvent,
  ContrastRequest,
  StrengthSweepEvent,
  StrengthSweepRequest,
  PriceEvent,
  PriceRequest,
  SteeringEvent,
  SteeringRequest,
} from "@/api/types";
import { createSseParser, type ServerSentEvent } from "@/lib/browser/sse";

import { noResponse, toApiError } from "./errors";

async function open(url: string, init: RequestInit): Promise<ReadableStream<Uint8Array>> {
  const response = await fetch(url, init).catch((error: unknown) => {
    if (error instanceof TypeError) throw noResponse();
    throw error;
  });
  if (!response.ok || response.body === null) {
    throw toApiError(await response.json().catch(() => null), response);
  }
  return response.body;
}

/** The next chunk. A broken connection counts as no response. */
function read(reader: ReadableStreamDefaultReader<Uint8Array>) {
  return reader.read().catch((error: unknown) => {
    if (error instanceof TypeError) throw noResponse();
    throw error;
  });
}

async function* serverSentEvents(url: string, init: RequestInit): AsyncGenerator<ServerSentEvent> {
  const reader = (await open(url, init)).getReader();
  const decoder = new TextDecoder();
  const feed = createSseParser();
  try {
    for (let chunk = await read(reader); !chunk.done; chunk = await read(reader)) {
      yield* feed(decoder.decode(chunk.value, { stream: true }));
    }
  } finally {
    // Leaving the loop early closes the connection, so that the server stops generating.
    await reader.cancel().catch(() => undefined);
  }
}

/** Events of a request. Ending the loop early cancels it on the server. */
async function* events<Event>(url: string, request: unknown, signal: AbortSignal): AsyncGenerator<Event> {
  const init = {
    method: "POST",
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    body: JSON.stringify(request),
    signal,
  };
  for await (const event of serverSentEvents(url, init)) yield JSON.parse(event.data) as Event;
}

const runUrl = (run: string, path: string) => `/api/runs/${encodeURIComponent(run)}/${path}`;

/** Baseline and steered generation, token by token. The last event is `done` or `error`. */
export const streamSteering = (run: string, request: SteeringRequest, signal: AbortSignal) =>
  events<SteeringEvent>(runUrl(run, "steering"), request, signal);

/** One edit at several strengths. The last event is `done` or `error`. */
export const streamStrengthSweep = (run: string, request: StrengthSweepRequest, signal: AbortSignal) =>
  events<StrengthSweepEvent>(runUrl(run, "steering/sweep"), request, signal);

/** Price of some edits on unrelated text. The last event is `done` or `error`. */
export const streamPrice = (run: string, request: PriceRequest, signal: AbortSignal) =>
  events<PriceEvent>(runUrl(run, "steering/price"), request, signal);

/** Measurement of an expert's effects, which are stored at its end. The last event is `done` or `error`. */
export const streamAblation = (run: string, expert: number, signal: AbortSignal) =>
  events<AblationEvent>(runUrl(run, `experts/${expert}/ablation`), null, signal);

/** Contrast of two texts. The last event is `done` or `error`. */
export const streamContrast = (run: string, request: ContrastRequest, signal: AbortSignal) =>
  events<ContrastEvent>(runUrl(run, "contrast"), request, signal);
