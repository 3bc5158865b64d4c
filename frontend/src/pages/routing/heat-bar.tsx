/** Over the map: what it shows, how its rows are ranked, the same as a table, download. */

import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";

import type { RoutingResponse, RunSummary } from "@/api/types";
import { Button } from "@/components/button";
import { toCsv } from "@/components/figure/figure-data";
import { Icon } from "@/components/icon";
import { KChoice } from "@/components/k-choice";
import { layersInWords } from "@/components/run-words";
import { Segmented } from "@/components/segmented";
import { TriggerButton } from "@/components/trigger-button";
import { formatCount } from "@/lib/format";
import { saveFile } from "@/lib/save-file";
import type { SetParams, Values } from "@/url-state";

import type { Predicted, Ranking } from "./heat-rows";
import { LayersChoice } from "./other-layers";
import { routingTable } from "./routing-export";
import type { ROUTING_PARAMS } from "./routing-params";

interface HeatBarProps {
  readonly run: RunSummary;
  readonly response: RoutingResponse;
  readonly predicted: Predicted;
  readonly shown: number;
  readonly total: number;
  readonly params: Values<typeof ROUTING_PARAMS>;
  readonly setParams: SetParams<typeof ROUTING_PARAMS>;
}

const RANKINGS: Readonly<Record<Ranking, string>> = {
  summed: "by summed coefficient",
  largest: "by largest coefficient",
  often: "by tokens that they are active on",
  rarest: "by usage, rarest first",
};

interface DownloadProps extends Pick<HeatBarProps, "response" | "predicted"> {
  readonly withStart: boolean;
}

function Download({ response, predicted, withStart }: DownloadProps) {
  const save = (key: string | number) => {
    const tokens = response.tokens.map((token, position) => ({ ...token, ...predicted?.[position] }));
    if (key === "json") saveFile("routing.json", JSON.stringify({ ...response, tokens }, null, 1), "application/json");
    else saveFile("routing.csv", toCsv(routingTable(response, predicted, withStart)), "text/csv");
  };
  return (
    <MenuTrigger>
      <TriggerButton className="btn sm icon" aria-label="Download">
        <Icon name="download" />
      </TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Menu className="menu" aria-label="Download" onAction={save}>
          <MenuItem id="json">Routing, JSON</MenuItem>
          <MenuItem id="csv">Table, CSV</MenuItem>
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}

export function HeatBar({ run, response, predicted, shown, total, params, setParams }: HeatBarProps) {
  const asTable = params.view === "table";
  return (
    <div className="pane-h">
      <h2>Token by expert</h2>
      <span className="note">
        {shown < total ? `${formatCount(shown)} of ${formatCount(total)}` : formatCount(total)} experts,{" "}
        {RANKINGS[params.rank]}
        {run.layer !== run.last_layer && `; writing ${layersInWords(run)}`}
      </span>
      <span className="grow" />
      <KChoice run={run} k={params.k} onChange={(k) => setParams({ k })} />
      <LayersChoice run={run} chosen={params.layers} onChoose={(layers) => setParams({ layers })} />
      <Segmented
        label="Rank experts by"
        value={params.rank}
        onChange={(rank) => setParams({ rank })}
        segments={[
          { value: "summed", label: "Summed" },
          { value: "largest", label: "Largest" },
          { value: "often", label: "Often" },
          { value: "rarest", label: "Rarest" },
        ]}
      />
      <Button
        size="small"
        icon={asTable ? "chart" : "table"}
        aria-label={asTable ? "As a map" : "As a table"}
        onClick={() => setParams({ view: asTable ? "map" : "table" })}
      />
      <Download response={response} predicted={predicted} withStart={params.start} />
    </div>
  );
}
