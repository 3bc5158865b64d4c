/** Tooltip of a cell: the expert, its activation, and what it writes on this token. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { directEffectsQuery } from "@/api/queries";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatSigned } from "@/lib/text/format";
import type { Column, HeatRow } from "@/pages/prompt/routing/heat-map/heat-rows";
import { CellTip } from "@/pages/prompt/routing/heat-map/heat-tips";

/** Milliseconds on the cell before the effects are requested, so that a passing pointer requests nothing. */
const REST_MS = 250;
const MAX_WRITTEN = 3;

interface TracedTipProps {
  readonly run: string;
  readonly prompt: string;
  readonly column: Column;
  readonly row: HeatRow;
}

export function TracedTip({ run, prompt, column, row }: TracedTipProps) {
  const [isAtRest, setAtRest] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => setAtRest(true), REST_MS);
    return () => window.clearTimeout(timer);
  }, []);
  const { data } = useQuery(directEffectsQuery(run, prompt, isAtRest ? column.position : null));
  const effect = data?.experts.find(({ expert }) => expert === row.expert);
  return (
    <>
      <CellTip row={row} column={column} />
      <div className="traced-writes">
        <span className="dim">Writes</span>
        {effect === undefined && <span className="dim">…</span>}
        {effect?.promoted.slice(0, MAX_WRITTEN).map(({ id, text, change }) => (
          <span key={id}>
            <TokenChip text={text} /> <span className="num up">{formatSigned(change, 2)}</span>
          </span>
        ))}
      </div>
    </>
  );
}
