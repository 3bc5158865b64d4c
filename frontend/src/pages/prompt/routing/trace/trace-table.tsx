/** Tokens as rows, layers as columns: each row is a token's path, from its first layer to the next token. */

import { useMemo } from "react";
import { Link } from "react-router";

import type { PredictedToken } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { useTips } from "@/components/tokens/tip-layer";
import { ScrollBox } from "@/components/ui/scroll-box";
import { sequentialStep } from "@/lib/scales/colour-scale";
import { columnText } from "@/pages/prompt/routing/heat-map/columns";
import { type CellPosition, heatEvents } from "@/pages/prompt/routing/heat-map/heat-events";
import { type Column, formatKl, type Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";
import { CellTip, ColumnTip } from "@/pages/prompt/routing/heat-map/heat-tips";

import { type TracedExpert, type TraceLayer, tracedName } from "./trace-rows";

interface TraceTableProps {
  readonly columns: readonly Column[];
  readonly layers: readonly TraceLayer[];
  readonly predicted: Predicted;
  /** Position of the token whose path is in the side panel. */
  readonly current: number | undefined;
  readonly onChoose: (position: number) => void;
}

interface ExpertProps extends TracedExpert {
  readonly layer: TraceLayer;
  readonly position: number;
}

function Expert({ layer, position, row, cell }: ExpertProps) {
  return (
    <Link
      to={pageLinks(layer.run).expert(row.expert)}
      tabIndex={-1}
      data-position={position}
      data-run={layer.run}
      data-expert={row.expert}
      className={`s${Math.max(1, sequentialStep(cell.coefficient, layer.end))}`}
    >
      <span className="name">
        <span className="mono id">{row.expert}</span> {tracedName(row.info)}
      </span>
    </Link>
  );
}

function useEvents({ columns, layers, predicted, onChoose }: TraceTableProps) {
  const tips = useTips();
  return useMemo(() => {
    const tipAt = ({ position, expert }: CellPosition, run: string | undefined) => {
      const column = columns.find((one) => one.position === position);
      const layer = layers.find((one) => one.run === run);
      const traced = layer?.tokens.get(position)?.find(({ row }) => row.expert === expert);
      if (column === undefined) return null;
      if (traced === undefined) return <ColumnTip column={column} predicted={predicted} />;
      return <CellTip row={traced.row} column={column} />;
    };
    return heatEvents({
      onEnter: (cell, element) => tips.show(element, tipAt(cell, element.dataset.run)),
      onLeave: tips.hide,
      onLock: ({ position, expert }) => {
        if (expert === null) onChoose(position);
      },
    });
  }, [columns, layers, onChoose, predicted, tips]);
}

/** The most probable next token of the original model and, where it differs, with the layers replaced. */
function NextToken({ predictions }: Pick<PredictedToken, "predictions">) {
  const [original] = predictions;
  if (original === undefined) return null;
  const replaced = predictions.reduce((best, one) => (one.replaced > best.replaced ? one : best), original);
  return (
    <>
      <TokenChip text={original.text} />
      {replaced !== original && (
        <>
          {" → "}
          <TokenChip text={replaced.text} />
        </>
      )}
    </>
  );
}

function Head({ layers }: Pick<TraceTableProps, "layers">) {
  return (
    <thead>
      <tr>
        <th scope="col">Token</th>
        {layers.map(({ run, layer }) => (
          <th key={run} scope="col" title={run}>
            Layer {layer}
          </th>
        ))}
        <th scope="col">
          <Term id="traced_next">Next token</Term>
        </th>
        <th scope="col" className="num">
          <Term id="kl">KL</Term>
        </th>
      </tr>
    </thead>
  );
}

function Path({ column, layers, predicted, current }: Omit<TraceTableProps, "columns"> & { readonly column: Column }) {
  const { position, token } = column;
  const next = predicted?.[position];
  return (
    <tr className={position === current ? "lk" : undefined}>
      <th scope="row">
        <button type="button" data-position={position} data-run="" aria-pressed={position === current}>
          {columnText(token.text)}
        </button>
      </th>
      {layers.map((layer) => {
        const [strongest] = layer.tokens.get(position) ?? [];
        return (
          <td key={layer.run}>
            {strongest === undefined ? (
              <span className="dim">–</span>
            ) : (
              <Expert layer={layer} position={position} {...strongest} />
            )}
          </td>
        );
      })}
      <td className="next">{next === undefined ? "…" : <NextToken predictions={next.predictions} />}</td>
      <td className="num">{next === undefined ? "…" : formatKl(next.kl)}</td>
    </tr>
  );
}

export function TraceTable(props: TraceTableProps) {
  const { columns, ...shared } = props;
  const events = useEvents(props);
  return (
    <ScrollBox className="trace-box" label="Trace">
      <table className="trace" aria-label="Strongest expert, tokens by layers" {...events}>
        <Head layers={props.layers} />
        <tbody>
          {columns.map((column) => (
            <Path key={column.position} column={column} {...shared} />
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}
