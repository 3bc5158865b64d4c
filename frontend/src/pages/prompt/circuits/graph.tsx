/** The graph: nodes are buttons, edges are SVG paths. Dashes and symbols show signs in addition to colour. */

import { useLayoutEffect, useMemo, useRef } from "react";

import type { CircuitCheck, CircuitGraph, CircuitResponse } from "@/api/types";
import { tokenEvents } from "@/components/tokens/token-text";
import { ScrollBox } from "@/components/ui/pane-head";
import { divergingClass } from "@/lib/scales/colour-scale";
import { formatFixed, formatSigned } from "@/lib/text/format";
import { type Edge, Edges, nextCell } from "@/pages/prompt/edges";
import { ExpertName } from "@/pages/prompt/expert-name";

import { effectText, expertInfo, graphRows, nodeName, signClass, tokenRuns, tokenText } from "./circuit";

interface GraphProps {
  readonly response: CircuitResponse;
  readonly check: CircuitCheck | null;
  /** Indices of nodes; `active` is the one whose edges are highlighted. */
  readonly selected: number;
  readonly active: number;
  readonly onSelect: (index: number) => void;
  /** The node under the pointer or focus, null when it leaves. */
  readonly onHover: (index: number | null) => void;
}

interface NodeProps extends Pick<GraphProps, "response" | "check" | "selected"> {
  readonly index: number;
  /** The size with the darkest shade. */
  readonly largest: number;
}

function Node({ response, check, selected, index, largest }: NodeProps) {
  const node = response.graph.nodes[index];
  if (node === undefined) return null;
  const measured = check?.measured[index];
  const isTarget = node.kind === "target";
  const change = measured ?? node.predicted;
  const shade = divergingClass(-change, largest) || (change < 0 ? "u1" : "d1");
  const info = expertInfo(response, node);
  return (
    <button
      type="button"
      className={`expert-box cnode ${isTarget ? "target" : `${signClass(change)} ${shade}`}`}
      tabIndex={index === selected ? 0 : -1}
      data-node={index}
      data-position={node.position}
      aria-pressed={index === selected}
    >
      <i className="sr">{isTarget ? "Target: " : `${nodeName(response, node)}, `}</i>
      <span className="clamp">{isTarget ? response.graph.label : <ExpertName info={info} />}</span>
      {!isTarget && <small> on {tokenText(response.graph, node.position)}</small>}
      <em className="num">
        {!isTarget && (
          <i className="sr">
            , predicted {effectText(node.predicted)}
            {measured != null && `, measured ${effectText(measured)}`}
          </i>
        )}
        <b aria-hidden={!isTarget}>{isTarget ? formatFixed(change) : formatSigned(-change)}</b>
      </em>
    </button>
  );
}

const LABEL = "Circuit; use the arrow keys to move between nodes";

/** A curve per edge, as wide as the share of the target's change that it stands for. */
function circuitEdges({ nodes, edges }: CircuitGraph, active: number): readonly Edge[] {
  const sizes = edges.map(({ source, target, predicted }) => {
    const end = nodes[target];
    return target === 0 || end?.activation == null
      ? Math.abs(nodes[source]?.predicted ?? 0)
      : Math.abs((predicted / end.activation) * end.predicted);
  });
  const largest = Math.max(1e-9, ...sizes);
  return edges.map(({ source, target, predicted }, i) => ({
    from: String(source),
    to: String(target),
    isUp: predicted < 0,
    size: (sizes[i] ?? 0) / largest,
    isNear: source === active || target === active,
  }));
}

/** A table of layers by tokens; on a narrow screen, its rows are lists. */
export function Graph(props: GraphProps) {
  const { response, check, selected, active, onSelect, onHover } = props;
  const { graph } = response;
  const box = useRef<HTMLDivElement>(null);
  const runs = useMemo(() => tokenRuns(graph), [graph]);
  const edges = useMemo(() => circuitEdges(graph, active), [graph, active]);
  // The target and the strongest experts are at the last tokens.
  useLayoutEffect(() => {
    if (box.current !== null) box.current.scrollLeft = box.current.scrollWidth;
  }, [graph]);
  const changes = graph.nodes.slice(1).map(({ predicted }, i) => Math.abs(check?.measured[i + 1] ?? predicted));
  const largest = Math.max(1e-9, ...changes);
  const node = (index: number) => <Node key={index} {...{ response, check, selected, index, largest }} />;
  const events = tokenEvents({
    selector: "[data-node]",
    onEnter: (box) => onHover(box === null ? null : Number(box.dataset.node)),
    onPress: (box) => onSelect(Number(box.dataset.node)),
    next: nextCell,
  });
  return (
    <ScrollBox className="layer-box" label="Circuit by token" ref={box}>
      <div className="layer-table circuit" role="group" aria-label={LABEL} {...events}>
        <Edges edges={edges} />
        <table role="presentation">
          <tbody>
            {graphRows(graph).map(({ title, indices }) => (
              <tr key={title}>
                <td>{title}</td>
                {(indices.length === 0 ? runs.slice(0, 1) : runs).map(({ positions: [position] }) => (
                  <td key={position} colSpan={indices.length === 0 ? runs.length : 1}>
                    <div className="row wrap">
                      {indices.filter((i) => graph.nodes[i]?.position === position).map(node)}
                      {indices.length === 0 && <span className="dim">none among the {changes.length} strongest</span>}
                    </div>
                  </td>
                ))}
              </tr>
            ))}
            <tr className="ctokens">
              <td>Tokens</td>
              {runs.map(({ positions, isNamed }) => {
                const text = positions.map((position) => tokenText(graph, position)).join(" ");
                return (
                  <td key={positions[0]} title={text}>
                    {isNamed ? text : "⋯"}
                  </td>
                );
              })}
            </tr>
          </tbody>
        </table>
      </div>
    </ScrollBox>
  );
}
