/** Reads a graph from a file that the user chose. */

import { type GraphFile, readCircuit } from "@/api/circuits";

import { isRecord, type OpenedGraph } from "./graph-file";

const notAGraph = (name: string) =>
  new Error(`${name} is not a circuit graph. Open a .json file of MxD Explorer, circuit-tracer or Neuronpedia.`);

function parse(name: string, text: string): GraphFile {
  let document: unknown = null;
  try {
    document = JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  if (isRecord(document)) return document;
  throw notAGraph(name);
}

export async function openGraph(chosen: File): Promise<OpenedGraph> {
  const file = parse(chosen.name, await chosen.text());
  if (!("metadata" in file && "nodes" in file && "links" in file)) throw notAGraph(chosen.name);
  return { name: chosen.name, file, response: await readCircuit(file) };
}
