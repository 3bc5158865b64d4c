/** Experts of a circuit as what is switched off: for the server, and for Steering. */

import type { CircuitNode, CircuitResponse } from "@/api/types";
import type { Edit } from "@/lib/edits";
import { writeParams } from "@/url-state";

import { STEERING_PARAMS } from "../steering/steering-params";

/** As many as the server takes at once. */
export const MOST_GROUPS = 64;

/** Experts as the server takes them. */
export function switches(nodes: readonly CircuitNode[]) {
  return nodes.flatMap(({ run, position, expert }) =>
    run === null || expert === null ? [] : [{ run, position, expert }],
  );
}

/** Steering with the chosen experts off on their tokens, of the text up to the token that is explained. */
export function steeringAddress(response: CircuitResponse, nodes: readonly CircuitNode[], run: string): string {
  const edits = new Map<string, Edit>();
  for (const one of switches(nodes)) {
    const other = one.run === run ? {} : { run: one.run };
    edits.set(`${one.run}/${one.expert}`, { expert: one.expert, mode: "off", strength: 1, ...other });
  }
  const at = [...new Set(nodes.map(({ position }) => position))].sort((a, b) => a - b);
  const prompt = response.graph.tokens.flatMap(({ start, text }) => (start ? [] : [text])).join("");
  const search = `?${new URLSearchParams({ run }).toString()}`;
  const params = { prompt, edits: [...edits.values()], scope: "chosen" as const, at };
  return `/steering${writeParams(STEERING_PARAMS, search, params)}`;
}
