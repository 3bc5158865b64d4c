/** The graph: nodes are buttons, edges are SVG paths. Dashes and symbols show signs in addition to colour. */

import { type KeyboardEvent, useLayoutEffect, useMemo, useRef, useState } from "react";

import type { CircuitCheck, CircuitResponse } from "@/api/types";
import { useIsNarrow, useWidth } from "@/hooks/use-size";
import { divergingClass } from "@/lib/scales/colour-scale";
import { formatFixed, formatSigned } from "@/lib/text/format";
import { ExpertName } from "@/pages/prompt/expert-name";

import { graphLayers, type Layout, layoutCircuit, neighbour, type Placed } from "./layout";
import { effectText, expertInfo, nodeName, signClass, tokenText } from "./circuit";

const MAX_STROKE = 4.5;

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

function curve(from: Placed, to: Placed): string {
  const [y1, y2] = [from.y - from.height / 2, to.y + to.height / 2];
  const bend = Math.max(14, Math.abs(y1 - y2) * 0.45);
  return `M${from.x} ${y1}C${from.x} ${y1 - bend} ${to.x} ${y2 + bend} ${to.x} ${y2}`;
}

function Edges({ response, layout, active }: Pick<GraphProps, "response" | "active"> & { readonly layout: Layout }) {
  const { nodes, edges } = response.graph;
  /** Share of the target's change that an edge stands for. */
  const size = ({ source, target, predicted }: (typeof edges)[number]) => {
    const end = nodes[target];
    return target === 0 || end?.activation == null
      ? Math.abs(nodes[source]?.predicted ?? 0)
      : Math.abs((predicted / end.activation) * end.predicted);
  };
  const largest = Math.max(1e-9, ...edges.map(size));
  return (
    <svg className="circuit-edges" width={layout.width} height={layout.height} aria-hidden="true">
      {edges.map((edge) => {
        const [from, to] = [layout.nodes[edge.source], layout.nodes[edge.target]];
        if (from === undefined || to === undefined) return null;
        const isNear = edge.source === active || edge.target === active;
        return (
          <path
            key={`${edge.source}-${edge.target}`}
            d={curve(from, to)}
            className={`${signClass(edge.predicted)}${isNear ? " near" : ""}`}
            strokeWidth={0.8 + MAX_STROKE * Math.sqrt(size(edge) / largest)}
          />
        );
      })}
    </svg>
  );
}

interface NodeProps extends GraphProps {
  readonly index: number;
  /** The size with the darkest shade. */
  readonly largest: number;
  /** Null in the list of a narrow screen. */
  readonly placed: Placed | null;
  readonly isTabStop: boolean;
  readonly onKeyDown?: (event: KeyboardEvent<HTMLElement>) => void;
}

function Node(props: NodeProps) {
  const { response, check, selected, index, largest, placed, isTabStop, onKeyDown, onSelect, onHover } = props;
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
      className={`cnode ${isTarget ? "target" : `${signClass(change)} ${shade}`}${index === selected ? " selected" : ""}`}
      style={
        placed === null
          ? undefined
          : {
              left: placed.x - placed.width / 2,
              top: placed.y - placed.height / 2,
              width: placed.width,
              height: placed.height,
            }
      }
      tabIndex={isTabStop ? 0 : -1}
      data-node={index}
      aria-pressed={index === selected}
      onClick={() => onSelect(index)}
      onKeyDown={onKeyDown}
      onPointerEnter={() => onHover(index)}
      onPointerLeave={() => onHover(null)}
      onFocus={({ currentTarget }) => currentTarget.matches(":focus-visible") && onHover(index)}
      onBlur={() => onHover(null)}
    >
      <i className="sr">{isTarget ? "Target: " : `${nodeName(response, node)}, `}</i>
      {isTarget ? <span>{response.graph.label}</span> : <ExpertName info={info} />}
      {placed === null && !isTarget && <small> on {tokenText(response.graph, node.position)}</small>}
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

type PartProps = GraphProps & Pick<NodeProps, "largest">;
const LABEL = "Circuit; use the arrow keys to move between nodes";
/** Width of the names of the rows. */
const ROW_NAMES = 68;

/** On a narrow screen: the target and the experts of each layer, one below the other. */
function NodeList(props: PartProps) {
  const node = (index: number) => <Node key={index} {...props} index={index} placed={null} isTabStop />;
  return (
    <div className="circuit-nodes" role="group" aria-label="Circuit">
      {node(0)}
      {graphLayers(props.response.graph).map(({ layer, indices }) => (
        <section key={layer} aria-label={`Layer ${layer}`}>
          <h2>Layer {layer}</h2>
          {indices.map(node)}
        </section>
      ))}
    </div>
  );
}

function Drawing(props: PartProps) {
  const { response, active } = props;
  const box = useRef<HTMLDivElement>(null);
  const available = useWidth(box) - ROW_NAMES;
  const layout = useMemo(() => layoutCircuit(response.graph, available), [response, available]);
  const [stop, setStop] = useState(0);
  const { width, height } = layout;
  // The target and the strongest experts are at the last tokens.
  useLayoutEffect(() => {
    if (box.current !== null) box.current.scrollLeft = box.current.scrollWidth;
  }, [response, width]);
  const onArrow = (event: KeyboardEvent<HTMLElement>, from: Placed) => {
    const next = neighbour(layout.nodes, from, event.key);
    if (next === undefined) return;
    event.preventDefault();
    setStop(next.index);
    event.currentTarget.parentElement?.querySelector<HTMLElement>(`[data-node="${next.index}"]`)?.focus();
  };
  return (
    <>
      <div className="circuit-box" ref={box} data-scrolls={width > available}>
        <div className="circuit-rows" style={{ height, width: ROW_NAMES }} aria-hidden="true">
          {layout.rows.map(({ title, y, height: rowHeight }) => (
            <span key={title} style={{ top: y, height: rowHeight }}>
              {title}
            </span>
          ))}
        </div>
        <div className="circuit" role="group" aria-label={LABEL} style={{ width, height }}>
          {layout.columns.map(({ text, label, x, width: column }) => (
            <span key={x} className="ctoken" title={text} style={{ left: x, width: column }}>
              {label}
            </span>
          ))}
          <Edges response={response} layout={layout} active={active} />
          {layout.nodes.map((placed) => (
            <Node
              key={placed.index}
              {...props}
              index={placed.index}
              placed={placed}
              isTabStop={placed.index === stop}
              onKeyDown={(event) => onArrow(event, placed)}
            />
          ))}
        </div>
      </div>
      {available > 0 && width > available && <p className="dim">Earlier tokens are on the left: scroll sideways</p>}
    </>
  );
}

export function Graph(props: GraphProps) {
  const isNarrow = useIsNarrow();
  const { nodes } = props.response.graph;
  const changes = nodes.slice(1).map(({ predicted }, i) => Math.abs(props.check?.measured[i + 1] ?? predicted));
  const largest = Math.max(1e-9, ...changes);
  return isNarrow ? <NodeList {...props} largest={largest} /> : <Drawing {...props} largest={largest} />;
}
