/** The verdict above the graph: whether its predictions hold, and in which layers they do not. */

import type { CircuitResponse } from "@/api/types";
import { Term } from "@/components/terms/term";
import { formatPercent } from "@/lib/text/format";

import type { Check } from "./use-check";
import { checkLayers, isWeak, verdict } from "./verdict";

function WeakLayers({ response, check }: { readonly response: CircuitResponse; readonly check: Check }) {
  const weak = checkLayers(response, check.measured).filter(isWeak);
  if (weak.length === 0) return null;
  const named = weak.map(({ layer, share }) => `layer ${layer} (${formatPercent(share, 0)} %)`);
  return (
    <span className="dim">
      Faded layers: the measured change is below 25 % of the predicted one in {named.join(", ")}.
    </span>
  );
}

interface VerdictLineProps {
  readonly response: CircuitResponse;
  readonly check: Check;
  /** True for a graph from a file: nothing is measured for it here. */
  readonly isFromFile: boolean;
}

export function VerdictLine({ response, check, isFromFile }: VerdictLineProps) {
  const experts = response.graph.nodes.filter(({ kind }) => kind === "expert").length;
  const found = check.agreement === undefined ? null : verdict(check.agreement, check.measured.size, experts);
  if (found !== null) {
    return (
      <p className="verdict" data-level={found.level} role="status">
        <span>
          <b>
            <Term id="circuit_verdict">{found.headline}</Term>:
          </b>{" "}
          {found.figures}
        </span>
        <WeakLayers response={response} check={check} />
      </p>
    );
  }
  const isWaiting = !isFromFile && experts > 0 && check.error === null;
  const text = isFromFile
    ? "The file has no measured effects, so it is unknown whether its predictions hold."
    : experts === 0
      ? "The graph has no experts, so there is nothing to check."
      : (check.error?.message ?? `Checking the graph: ablating its ${experts} experts one at a time…`);
  return (
    <p className="verdict" role="status" aria-busy={isWaiting}>
      {text}
    </p>
  );
}
