/** The expert as the linear map that it is: what it writes most of, and which output dimensions it opens and closes. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { expertMapQuery } from "@/api/queries";
import type { ExpertMap, RunSummary, TokenEffect } from "@/api/types";
import { Button } from "@/components/button";
import { ErrorState, LoadingState } from "@/components/states";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatFixed, formatPercent, formatSigned } from "@/lib/format";

function Tokens({ tokens }: { readonly tokens: readonly TokenEffect[] }) {
  return (
    <span className="chips">
      {tokens.map((token) => (
        <TokenChip key={token.id} text={token.text} />
      ))}
    </span>
  );
}

function Directions({ map }: { readonly map: ExpertMap }) {
  return (
    <div className="matrix-scroll">
      <table className="matrix-table">
        <caption>Leading singular directions: it writes more or less of each, with either sign</caption>
        <thead>
          <tr>
            <th className="num">Share</th>
            <th>Tokens at one end</th>
            <th>Tokens at the other</th>
          </tr>
        </thead>
        <tbody>
          {map.directions.map((direction, i) => (
            <tr key={i}>
              <td className="num">{formatPercent(direction.share, 1)} %</td>
              <td>
                <Tokens tokens={direction.one_end} />
              </td>
              <td>
                <Tokens tokens={direction.other_end} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface DimensionsProps {
  readonly caption: string;
  readonly of: ExpertMap["opened"];
}

function Dimensions({ caption, of }: DimensionsProps) {
  return (
    <table className="matrix-table">
      <caption>{caption}</caption>
      <thead>
        <tr>
          <th className="num">Dimension</th>
          <th className="num">c</th>
          <th className="num">of the usual</th>
        </tr>
      </thead>
      <tbody>
        {of.map(({ dimension, scaling, relative }) => (
          <tr key={dimension}>
            <td className="num">{dimension}</td>
            <td className="num">{formatSigned(scaling, 3)}</td>
            <td className="num">× {formatFixed(relative, 2)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function TakenApart({ map }: { readonly map: ExpertMap }) {
  return (
    <>
      <p className="influence-words">
        Stable rank <b>{formatFixed(map.stable_rank, 1)}</b>: 1 would be a map that writes one direction, whatever
        comes.
        {map.closed_share !== null && ` It closes ${formatPercent(map.closed_share, 1)} % of the output dimensions.`}
      </p>
      <div className="matrix">
        <Directions map={map} />
        {map.opened.length > 0 && <Dimensions caption="Output dimensions that it opens" of={map.opened} />}
        {map.closed.length > 0 && <Dimensions caption="… and closes" of={map.closed} />}
      </div>
      <p className="influence-words">
        From the weights alone. Tokens: as final norm and unembedding read the direction. Of the usual: |c| against the
        root mean square over all experts in that dimension; under 0.1 it counts as closed.
      </p>
    </>
  );
}

/** Whether experts of a run are maps of one layer; those of transcoders and their like write one direction each. */
export const hasMatrix = (run: RunSummary) => run.method.endsWith("mxd") && run.layer === run.last_layer;

interface MatrixProps {
  readonly run: string;
  readonly expert: number;
}

export function Matrix({ run, expert }: MatrixProps) {
  const [isWanted, setWanted] = useState(false);
  const { data, error, refetch } = useQuery(expertMapQuery(run, expert, isWanted));
  return (
    <section className="pane matrix-pane">
      <div className="pane-h">
        <h2>As a matrix</h2>
        <span className="note">what it can write, whatever its contexts</span>
        <span className="grow" />
        {!isWanted && (
          <Button size="small" onClick={() => setWanted(true)}>
            Take it apart
          </Button>
        )}
      </div>
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {isWanted && error === null && data === undefined && <LoadingState label="Taking it apart" rows={4} />}
      {data !== undefined && <TakenApart map={data} />}
    </section>
  );
}
