/** Below the graph: which part of all influence is drawn, and which part begins where no expert explains it. */

import type { CircuitResponse } from "@/api/types";
import { Term } from "@/components/terms/term";
import { formatCount, formatPercent } from "@/lib/text/format";
import { unexplainedShare } from "@/pages/prompt/circuits/check/verdict";

import { expertEdges, type ShownGraph, shownIndices, shownInfluence } from "./shown-graph";

interface CoverageProps {
  readonly response: CircuitResponse;
  readonly shown: ShownGraph;
  /** False for a file that holds no figures of the whole graph. */
  readonly isWhole: boolean;
}

export function Coverage({ response, shown, isWhole }: CoverageProps) {
  const { num_nodes, origins } = response.graph;
  const outside = unexplainedShare(origins);
  const drawn = shownIndices(shown).length;
  return (
    <p className="circuit-coverage dim">
      The <Term id="circuit">circuit</Term> draws {formatCount(drawn)} of {formatCount(num_nodes)}{" "}
      {isWhole ? "nodes" : "saved nodes"}. {drawn === 1 ? "It carries" : "They carry"}{" "}
      {formatPercent(shownInfluence(response, shown), 0)}&nbsp;% of the summed <Term id="influence">influence</Term> of
      all {isWhole ? "nodes" : "saved nodes"}, MLPs and error nodes included.{" "}
      {outside !== null && (
        <>
          “Unexplained” counts all paths, drawn or not: {formatPercent(outside, 0)}&nbsp;% of their influence begins in
          an MLP without a run or in an <Term id="error_node">error node</Term>.{" "}
        </>
      )}
      {expertEdges(shown)}
    </p>
  );
}

/** Says that the sliders hid all experts, since the verdict is about them. */
export function NoExperts({ response, shown }: Omit<CoverageProps, "isWhole">) {
  const experts = response.graph.nodes.filter(({ kind }) => kind === "expert").length;
  const isLeft = shownIndices(shown).some((index) => response.graph.nodes[index]?.kind === "expert");
  if (experts === 0 || isLeft) return null;
  return (
    <p className="no-experts" role="status">
      No expert of the {formatCount(experts)} is shown. The verdict is about the whole graph.
    </p>
  );
}
