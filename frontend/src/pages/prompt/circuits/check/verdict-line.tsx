/** The verdict above the graph: whether its predictions hold, in which layers they do not, and what no expert explains. */

import { useState } from "react";

import type { CircuitResponse } from "@/api/types";
import { Term } from "@/components/terms/term";
import { Button } from "@/components/ui/button";
import { useIsNarrow } from "@/hooks/use-is-narrow";

import { checkLayers, describeLayer, isWeak } from "./measured";
import type { Check } from "./use-check";
import { unexplained, verdict } from "./verdict";

function WeakLayers({ response, check }: { readonly response: CircuitResponse; readonly check: Check }) {
  const weak = checkLayers(response, check.measured).filter(isWeak);
  if (weak.length === 0) return null;
  return (
    <p className="dim">
      Faded layers: ablated one at a time, their checked experts have together little of the predicted effect:{" "}
      {weak.map(describeLayer).join("; ")}.
    </p>
  );
}

interface VerdictLineProps {
  readonly response: CircuitResponse;
  readonly check: Check;
  /** True for a graph from a file: nothing is measured for it here. */
  readonly isFromFile: boolean;
}

/** What is known while there is no verdict. */
function waitingText(experts: number, { error }: Check, isFromFile: boolean): string {
  if (isFromFile) return "The file has no measured effects, so it is unknown whether its predictions hold.";
  if (experts === 0) return "The graph has no experts, so there is nothing to check.";
  return error?.message ?? `Checking the graph: ablating its ${experts} experts one at a time…`;
}

const PENDING = ["Direction", "Correlation", "Slope"].map((name) => ({ name, value: "…", note: "" }));

export function VerdictLine({ response, check, isFromFile }: VerdictLineProps) {
  const [isOpen, setOpen] = useState(false);
  const isNarrow = useIsNarrow();
  const experts = response.graph.nodes.filter(({ kind }) => kind === "expert").length;
  const found =
    check.agreement === undefined
      ? null
      : verdict(check.agreement, check.measured.size, experts, response.graph.origins);
  const isWaiting = found === null && !isFromFile && experts > 0 && check.error === null;
  const outside = unexplained(response.graph.origins);
  const measured = found?.figures ?? (isWaiting ? PENDING : []);
  const figures = [...measured, ...(outside === null ? [] : [outside])];
  const hasNotes = !isNarrow || isOpen;
  return (
    <div className="circuit-verdict" data-level={found?.level} role="status" aria-busy={isWaiting}>
      <p className="headline">
        {found === null ? (
          waitingText(experts, check, isFromFile)
        ) : (
          <b>
            <Term id="circuit_verdict">{found.headline}</Term>
          </b>
        )}
        {isNarrow && (
          <Button size="small" variant="ghost" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {isOpen ? "Less" : "Details"}
          </Button>
        )}
      </p>
      <dl>
        {figures.map(({ name, value, note }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd className="value">{value}</dd>
            {hasNotes && <dd className="dim">{note}</dd>}
          </div>
        ))}
      </dl>
      {hasNotes && <WeakLayers response={response} check={check} />}
    </div>
  );
}
