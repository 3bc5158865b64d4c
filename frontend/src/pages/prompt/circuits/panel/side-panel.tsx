/** Side panel of the graph: explained token, logit attribution and node details. */

import type { CircuitRequest } from "@/api/circuits";
import type { CircuitResponse } from "@/api/types";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button, LinkButton } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import type { SetParams, Values } from "@/hooks/use-url-state";
import { formatFixed, formatPercent, formatProbability, formatSigned } from "@/lib/text/format";
import type { MeasuredEffects } from "@/pages/prompt/circuits/check/measured";
import { type CIRCUIT_PARAMS, NO_MARKS, toggled } from "@/pages/prompt/circuits/circuit-params";
import { shownName, signClass } from "@/pages/prompt/circuits/graph/node-labels";
import { FoldedEdges, NodeFacts, NodeLabel } from "@/pages/prompt/circuits/graph/node-tip";
import type { ShownNode } from "@/pages/prompt/circuits/graph/shown-graph";
import { TrayButton } from "@/pages/prompt/circuits/graph/tray-button";
import { useExpertUrl } from "@/pages/prompt/circuits/graph/use-expert-url";

import { Bar, CheckedEffect, GroupEffect, LargestEffects } from "./checked-effect";

type Source = "expert" | "embedding" | "mlp" | "error" | "bias";

const SOURCES: readonly (readonly [Source, string])[] = [
  ["expert", "Experts"],
  ["embedding", "Tokens"],
  ["mlp", "MLPs without a run"],
  ["error", "Error nodes"],
  ["bias", "Biases"],
];

interface PanelProps {
  readonly response: CircuitResponse;
  readonly params: Values<typeof CIRCUIT_PARAMS>;
  readonly setParams: SetParams<typeof CIRCUIT_PARAMS>;
}

/** Choice of the next token to explain. */
export function TargetPane({ response, params, setParams }: PanelProps) {
  const { target, candidates, tokens } = response.graph;
  const options = candidates.some(({ id }) => id === target.id) ? candidates : [target, ...candidates];
  return (
    <section aria-label="Explained token">
      <div className="pane-h">
        <h2>Next token to explain</h2>
        <span className="grow" />
        <label className="density-filter">
          at position{" "}
          <NumberInput
            label="Position"
            value={params.at ?? tokens.length - 1}
            digits={0}
            min={0}
            max={2047}
            onCommit={(at) => setParams({ at: Math.round(at), target: null, ...NO_MARKS }, "push")}
          />
        </label>
      </div>
      <div className="candidates" role="group" aria-label="Likely next tokens">
        {options.map((candidate) => (
          <Button
            key={candidate.id}
            size="small"
            variant={candidate.id === target.id ? "chosen" : "plain"}
            aria-pressed={candidate.id === target.id}
            onClick={() => setParams({ target: candidate.id, node: null }, "push")}
          >
            <TokenChip text={candidate.text} />{" "}
            <span className="num">{formatProbability(candidate.probability)} %</span>
          </Button>
        ))}
      </div>
    </section>
  );
}

interface LogitAttributionProps {
  readonly response: CircuitResponse;
  /** False for a file that holds no figures of the whole graph. */
  readonly isWhole: boolean;
}

/** Logit attribution by kind of source, direct and over all paths. */
export function LogitAttribution({ response, isWhole }: LogitAttributionProps) {
  const { direct, origins, target } = response.graph;
  const largestValue = Math.max(1e-9, ...Object.values(direct).map((value) => Math.abs(value)));
  const hasOrigins = Object.keys(origins).length > 0;
  return (
    <section aria-label="Logit attribution" className="logit-attribution">
      <div className="pane-h">
        <h2>Logit attribution</h2>
        {!isWhole && <span className="note">within the saved nodes</span>}
      </div>
      <table>
        <thead>
          <tr>
            <th>
              <span className="sr">Source</span>
            </th>
            <th className="num" colSpan={2}>
              <Term id="direct_effect">Direct effect</Term>
            </th>
            {hasOrigins && (
              <th className="num">
                <Term id="path_origin">Origin</Term> <span className="unit">%</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {SOURCES.filter(([kind]) => direct[kind] !== undefined).map(([kind, name]) => (
            <tr key={kind}>
              <th scope="row">{name}</th>
              <Bar value={direct[kind] ?? 0} largestValue={largestValue} />
              <td className={`num ${signClass(direct[kind] ?? 0)}`}>{formatSigned(direct[kind] ?? 0, 2)}</td>
              {hasOrigins && (
                <td className="num">{origins[kind] === undefined ? "" : formatPercent(origins[kind], 1)}</td>
              )}
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">Logit above the mean</th>
            <td />
            <td className="num">{formatFixed(target.logit, 2)}</td>
            {hasOrigins && <td />}
          </tr>
        </tfoot>
      </table>
    </section>
  );
}

interface NodePaneProps {
  readonly response: CircuitResponse;
  readonly shown: ShownNode;
  readonly measured: MeasuredEffects;
  readonly params: Values<typeof CIRCUIT_PARAMS>;
  readonly setParams: SetParams<typeof CIRCUIT_PARAMS>;
  /** Null for a graph from a file, and while the response belongs to an earlier request. */
  readonly request: CircuitRequest | null;
  /** False for a graph from a file. */
  readonly canAblate: boolean;
}

/** Buttons that ablate, pin and open the selected node. */
function NodeActions({ response, shown, params, setParams, canAblate }: Omit<NodePaneProps, "measured" | "request">) {
  const expertUrl = useExpertUrl();
  const url = shown.supernode === null ? expertUrl(shown.node) : null;
  const ids = shown.members.flatMap((member) => response.ids[member] ?? []);
  const experts = ids.filter((_, i) => response.graph.nodes[shown.members[i] ?? -1]?.kind === "expert");
  const isAblated = experts.length > 0 && experts.every((id) => params.ablated.includes(id));
  const isPinned = ids.every((id) => params.pinned.includes(id));
  if (shown.node.kind === "target") return null;
  return (
    <div className="node-actions">
      {canAblate && experts.length > 0 && (
        <Button
          size="small"
          variant={isAblated ? "chosen" : "plain"}
          aria-pressed={isAblated}
          onClick={() => setParams(({ ablated }) => ({ ablated: toggled(ablated, experts) }))}
        >
          {isAblated ? "Ablated" : "Ablate"}
        </Button>
      )}
      <Button
        size="small"
        variant={isPinned ? "chosen" : "plain"}
        aria-pressed={isPinned}
        onClick={() => setParams(({ pinned }) => ({ pinned: toggled(pinned, ids) }))}
      >
        {isPinned ? "Pinned" : "Pin"}
      </Button>
      {url !== null && (
        <LinkButton size="small" to={url}>
          Open expert {shown.node.expert}
        </LinkButton>
      )}
      {url !== null && <TrayButton node={shown.node} />}
    </div>
  );
}

/** Details of the selected node; of the explained token while none is selected. */
export function NodePane(props: NodePaneProps) {
  const { response, shown, measured, setParams } = props;
  return (
    <section className="node-pane" aria-label="Selected node">
      <div className="pane-h">
        <h2>{shownName(response, shown)}</h2>
      </div>
      <NodeLabel response={response} shown={shown} />
      <NodeActions {...props} />
      <NodeFacts response={response} shown={shown} measured={measured.has(shown.id) ? null : measured} />
      {shown.node.kind === "target" ? (
        <LargestEffects response={response} measured={measured} onSelect={(node) => setParams({ node })} />
      ) : shown.supernode !== null ? (
        <GroupEffect {...props} ablated={props.params.ablated} />
      ) : (
        <CheckedEffect response={response} measured={measured} shown={shown} />
      )}
      <FoldedEdges response={response} shown={shown} direction="in" />
      <FoldedEdges response={response} shown={shown} direction="out" />
    </section>
  );
}
