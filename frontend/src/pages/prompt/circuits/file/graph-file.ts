/** Pins, supernodes and measured effects in a graph's file, in the format of Neuronpedia and circuit-tracer. */

import type { GraphFile, ReadCircuit } from "@/api/circuits";
import type { MeasuredEffects } from "@/pages/prompt/circuits/check/measured";
import type { Supernode } from "@/pages/prompt/circuits/circuit-params";

/** A graph that was opened from a file. */
export interface OpenedGraph {
  readonly name: string;
  readonly file: GraphFile;
  readonly response: ReadCircuit;
}

interface Marks {
  readonly pinned: readonly string[];
  readonly groups: readonly Supernode[];
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The file with the marks of the page; everything else in it stays. */
export function withMarks(file: GraphFile, { pinned, groups }: Marks, measured: MeasuredEffects): GraphFile {
  const nodes = Array.isArray(file.nodes) ? (file.nodes as readonly unknown[]) : [];
  const marked = nodes.map((node) => {
    const change = isRecord(node) && typeof node.node_id === "string" ? measured.get(node.node_id) : undefined;
    return change === undefined ? node : { ...(node as GraphFile), measured_effect: change };
  });
  const supernodes = groups.map((group) => [group.name, ...group.nodes]);
  const view = isRecord(file.qParams) ? file.qParams : {};
  return { ...file, nodes: marked, qParams: { ...view, pinnedIds: pinned, supernodes } };
}

export function fileName(file: GraphFile): string {
  const slug = isRecord(file.metadata) ? file.metadata.slug : undefined;
  return `${typeof slug === "string" ? slug : "graph"}.json`;
}

/** Measured effects of an opened graph, by node id. */
export function measuredInFile({ ids, measured }: ReadCircuit): MeasuredEffects {
  return new Map(
    ids.flatMap((id, index) => {
      const change = measured[index];
      return change == null ? [] : [[id, change] as const];
    }),
  );
}
