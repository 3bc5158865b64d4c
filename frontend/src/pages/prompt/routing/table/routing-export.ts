/** A routing as a table: one row per token and active expert. */

import type { RoutingResponse } from "@/api/types";
import type { FigureTable } from "@/components/plots/figure/figure-data";
import type { Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";

const COLUMNS = [
  "position",
  "token",
  "KL from original, nats",
  "expert",
  "label",
  "coefficient",
  "share of output norm",
];

export function routingTable(response: RoutingResponse, predicted: Predicted, withStart: boolean): FigureTable {
  const rows = response.tokens.flatMap((token, position) =>
    token.start && !withStart
      ? []
      : token.experts.map((routed) => [
          String(position),
          token.text,
          predicted?.[position]?.kl.toFixed(4) ?? "",
          String(routed.expert),
          response.experts[routed.expert]?.label ?? "",
          routed.coefficient.toFixed(4),
          routed.share.toFixed(4),
        ]),
  );
  return { columns: COLUMNS, rows };
}
