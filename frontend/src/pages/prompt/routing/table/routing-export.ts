/** A routing as a table: one row per token and active expert. */

import type { RoutedExpertInfo, RoutingResponse } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import type { FigureTable } from "@/components/plots/figure/figure-data";
import type { Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";

const COLUMNS = [
  "position",
  "token",
  "KL from original, nats",
  "expert",
  "activation",
  "share of output norm",
  "label",
  "score if automatic",
];

/** The label by hand, or the automatic one with its score. */
function labelCells(info: RoutedExpertInfo | undefined): readonly [label: string, score: string] {
  const automatic = shownAutomatic(info?.automatic);
  return info?.label == null
    ? [automatic?.label ?? "", automatic?.balanced_accuracy?.toFixed(2) ?? ""]
    : [info.label, ""];
}

export function routingTable(response: RoutingResponse, predicted: Predicted, withStart: boolean): FigureTable {
  const rows = response.tokens.flatMap((token, position) =>
    token.start && !withStart
      ? []
      : token.experts.map((routed) => [
          String(position),
          token.text,
          predicted?.[position]?.kl.toFixed(4) ?? "",
          String(routed.expert),
          routed.activation.toFixed(4),
          routed.share.toFixed(4),
          ...labelCells(response.experts[routed.expert]),
        ]),
  );
  return { columns: COLUMNS, rows };
}
