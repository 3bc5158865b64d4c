/** Header of the heat map: controls, ranking, table view and download. */

import type { ReactNode } from "react";

import type { RoutingResponse, RunSummary } from "@/api/types";
import { toCsv } from "@/components/plots/figure/figure-data";
import { KSlider } from "@/components/runs/k-slider";
import { Term } from "@/components/terms/term";
import { ActionMenu } from "@/components/ui/action-menu";
import { Button } from "@/components/ui/button";
import { SegmentedControl } from "@/components/ui/segmented-control";
import type { SetParams, Values } from "@/hooks/use-url-state";
import { saveFile } from "@/lib/browser/save-file";
import { formatCount } from "@/lib/text/format";
import type { ROUTING_PARAMS } from "@/pages/prompt/routing/routing-params";
import { routingTable } from "@/pages/prompt/routing/table/routing-export";

import type { Predicted, Ranking } from "./heat-rows";

interface HeatBarProps {
  readonly run: RunSummary;
  readonly response: RoutingResponse;
  readonly predicted: Predicted;
  /** Numbers of experts: visible rows of the map, experts that pass the filters, and all active ones. */
  readonly shown: number;
  readonly total: number;
  readonly all: number;
  readonly params: Values<typeof ROUTING_PARAMS>;
  readonly setParams: SetParams<typeof ROUTING_PARAMS>;
}

const RANKINGS: Readonly<Record<Ranking, ReactNode>> = {
  specific: (
    <>
      by score: <Term id="specificity">summed activation × log₂(1 / density)</Term>, so experts active on most texts
      come last
    </>
  ),
  summed: "by summed activation",
  largest: "by max activation",
  often: "by number of active tokens",
  rarest: "by density, rarest first",
};

const FILES = { json: "Routing, JSON", csv: "All active experts, CSV" } as const;

interface DownloadProps extends Pick<HeatBarProps, "response" | "predicted"> {
  readonly withStart: boolean;
}

function Download({ response, predicted, withStart }: DownloadProps) {
  const save = (key: keyof typeof FILES) => {
    const tokens = response.tokens.map((token, position) => ({ ...token, ...predicted?.[position] }));
    if (key === "json") saveFile("routing.json", JSON.stringify({ ...response, tokens }, null, 1), "application/json");
    else saveFile("routing.csv", toCsv(routingTable(response, predicted, withStart)), "text/csv");
  };
  return <ActionMenu label="Download" actions={FILES} onAction={save} />;
}

export function HeatBar({ run, response, predicted, shown, total, all, params, setParams }: HeatBarProps) {
  const asTable = params.view === "table";
  return (
    <>
      <div className="pane-h">
        <h2>Experts by token</h2>
        <span className="grow" />
        <KSlider run={run} k={params.k} onChange={(k) => setParams({ k })} />
        {!asTable && (
          <SegmentedControl
            label="Rank experts by"
            value={params.rank}
            onChange={(rank) => setParams({ rank })}
            segments={[
              { value: "specific", label: "Specific" },
              { value: "summed", label: "Sum" },
              { value: "largest", label: "Max" },
              { value: "often", label: "Frequency" },
              { value: "rarest", label: "Rarity" },
            ]}
          />
        )}
        <span className="heat-tools">
          <Button
            size="small"
            icon={asTable ? "chart" : "table"}
            aria-label={asTable ? "Show as map" : "Show as table"}
            onClick={() => setParams({ view: asTable ? "map" : "table" })}
          />
          <Download response={response} predicted={predicted} withStart={params.start} />
        </span>
      </div>
      <p className="heat-order dim">
        {asTable ? (
          <>
            Tokens in text order, and the active experts of each token by activation, largest first;{" "}
            {total < all ? `${formatCount(total)} of ${formatCount(all)} experts pass the filters below` : "no filter"}
          </>
        ) : (
          <>
            {shown < total ? `${formatCount(shown)} of ${formatCount(total)}` : formatCount(total)} experts,{" "}
            {RANKINGS[params.rank]}
          </>
        )}
      </p>
    </>
  );
}
