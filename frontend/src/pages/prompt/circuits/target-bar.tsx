/** Choice of the target: a likely next token, its difference from another, or a continuation. */

import { useState } from "react";

import type { CircuitTarget } from "@/api/circuits";
import type { CircuitGraph } from "@/api/types";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { formatProbability } from "@/lib/text/format";

import { MOST_PROBABLE } from "./params";

const SHOWN = 6;

interface TargetBarProps {
  readonly graph: CircuitGraph;
  readonly onChange: (target: CircuitTarget) => void;
}

interface AgainstProps extends TargetBarProps {
  readonly token: number;
}

/** The token whose logit is subtracted. */
function Against({ graph, token, onChange }: AgainstProps) {
  return (
    <label>
      minus{" "}
      <select
        value={graph.target.kind === "difference" ? graph.target.other : ""}
        onChange={({ currentTarget: { value } }) =>
          onChange(value === "" ? { kind: "token", token } : { kind: "difference", token, other: Number(value) })
        }
      >
        <option value="">the mean of all tokens</option>
        {graph.candidates
          .filter(({ id }) => id !== token)
          .map(({ id, text }) => (
            <option key={id} value={id}>
              {JSON.stringify(text)}
            </option>
          ))}
      </select>
    </label>
  );
}

function Continuation({ graph, onChange }: TargetBarProps) {
  const [text, setText] = useState(graph.target.kind === "continuation" ? graph.target.text : "");
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onChange(text === "" ? MOST_PROBABLE : { kind: "continuation", text });
      }}
    >
      <input
        className="field"
        aria-label="Continuation to explain"
        placeholder="or a continuation, with its leading space"
        value={text}
        onChange={({ currentTarget }) => setText(currentTarget.value)}
      />
    </form>
  );
}

export function TargetBar({ graph, onChange }: TargetBarProps) {
  const { target, candidates } = graph;
  const token = target.kind === "token" || target.kind === "difference" ? (target.token ?? null) : null;
  return (
    <div className="target-bar" role="group" aria-label="Target">
      <span className="dim">Explain</span>
      {candidates.slice(0, SHOWN).map(({ id, text, probability }) => (
        <Button
          key={id}
          size="small"
          variant={id === token ? "chosen" : "plain"}
          aria-pressed={id === token}
          onClick={() => onChange({ kind: "token", token: id })}
        >
          <TokenChip text={text} /> <span className="num">{formatProbability(probability)} %</span>
        </Button>
      ))}
      {token !== null && <Against graph={graph} token={token} onChange={onChange} />}
      <Continuation graph={graph} onChange={onChange} />
      {target.kind === "expert" && (
        <>
          <b>{graph.label}</b>
          <Button size="small" icon="close" onClick={() => onChange(MOST_PROBABLE)}>
            Back to the next token
          </Button>
        </>
      )}
    </div>
  );
}
