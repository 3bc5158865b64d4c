/** Experts of a circuit as an ablation: for the server, and for Steering. */

import type { AblatedExpert } from "@/api/circuits";
import type { CircuitNode, CircuitResponse } from "@/api/types";
import { writeParams } from "@/hooks/use-url-state";
import type { Edit } from "@/lib/edits/edits";
import { STEERING_PARAMS } from "@/pages/steer/steering/steering-params";

/** The server's limit per request. */
export const MAX_GROUPS = 64;

/** The nodes of the given ids that are in the graph, in its order. */
export function nodesOf({ graph, ids }: CircuitResponse, chosen: readonly string[]): readonly CircuitNode[] {
  return graph.nodes.filter((_, index) => chosen.includes(ids[index] ?? ""));
}

/** The nodes' experts as API parameters. */
export function ablatedExperts(response: CircuitResponse, chosen: readonly string[]): readonly AblatedExpert[] {
  return nodesOf(response, chosen).flatMap(({ kind, run, position, expert }) =>
    kind !== "expert" || run === null || expert === null ? [] : [{ run, position, expert }],
  );
}

/** URL of Steering with the given experts ablated on their tokens, for the text up to the explained token. */
export function steeringUrl(response: CircuitResponse, experts: readonly AblatedExpert[], run: string): string {
  const edits = new Map<string, Edit>();
  for (const ablated of experts) {
    const other = ablated.run === run ? {} : { run: ablated.run };
    edits.set(`${ablated.run}/${ablated.expert}`, { expert: ablated.expert, mode: "ablate", strength: 1, ...other });
  }
  const positions = [...new Set(experts.map(({ position }) => position))].sort((a, b) => a - b);
  const prompt = response.graph.tokens.flatMap(({ start, text }) => (start ? [] : [text])).join("");
  const search = `?${new URLSearchParams({ run }).toString()}`;
  const params = { prompt, edits: [...edits.values()], scope: "chosen" as const, at: positions };
  return `/steering${writeParams(STEERING_PARAMS, search, params)}`;
}
