/** SVD of the expert's matrix: the tokens its singular directions promote, and its gain per output dimension. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link } from "react-router";

import { expertQuery, expertMapQuery } from "@/api/queries";
import type { Ablation, ExpertMap, RunSummary, TokenEffect } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";

import "./ablation.css";

interface RowProps {
  readonly name: string;
  readonly term: TermId;
  readonly children: ReactNode;
  readonly other?: string | undefined;
  readonly direction?: string | undefined;
}

function Row({ name, term, children, other = "", direction = "" }: RowProps) {
  return (
    <tr>
      <th scope="row">
        <Term id={term}>{name}</Term>
      </th>
      <td className="num own">{children}</td>
      <td className="num">{other}</td>
      <td className="num">{direction}</td>
    </tr>
  );
}

const percent = (value: number | null) => (value === null ? "–" : formatPercent(value, 1));
const loss = (value: number | null) => (value === null ? "–" : formatSigned(value, 4));

function EffectsTable({ ablation }: { readonly ablation: Ablation }) {
  const links = usePageLinks();
  return (
    <table className="ablation-effects">
      <thead>
        <tr>
          <th>
            <span className="sr">Measure</span>
          </th>
          <th className="num">Own</th>
          <th className="num">
            <Link to={links.expert(ablation.random_expert)} title="A random expert of the same density">
              Random<span className="sr"> expert {ablation.random_expert}</span>
            </Link>
          </th>
          <th className="num" title="A random direction of the same norm">
            Direction<span className="sr">, random</span>
          </th>
        </tr>
      </thead>
      <tbody>
        <Row name="Δ loss, ablated" term="loss_increase" other={loss(ablation.random_loss_increase)}>
          {loss(ablation.loss_increase)}
        </Row>
        <Row
          name="KL, amplified"
          term="kl_amplified"
          other={formatFixed(ablation.kl_random_expert, 4)}
          direction={formatFixed(ablation.kl_random_direction, 4)}
        >
          {formatFixed(ablation.kl_amplified, 4)}
        </Row>
        <Row name="Output share, %" term="output_share" other={percent(ablation.random_output_share)}>
          {formatPercent(ablation.output_share, 1)}
        </Row>
      </tbody>
    </table>
  );
}

/** Stored effects; nothing before they are measured. */
export function CausalImportance({ run, expert }: { readonly run: string; readonly expert: number }) {
  const { data } = useQuery(expertQuery(run, expert));
  const ablation = data?.ablation ?? null;
  if (ablation === null) return null;
  return (
    <section>
      <div className="pane-h">
        <h2>Causal importance</h2>
        <span className="note">
          <Term id="nats">nats</Term>, {formatCount(ablation.examples)} examples
        </span>
      </div>
      <EffectsTable ablation={ablation} />
      <p className="ablation-note">
        Baselines: a random expert of the same density, a random direction. Means without intervals: a loss change as
        small as the random expert’s is noise. <Term id="input_dependence">Input dependence</Term>{" "}
        {formatPercent(ablation.input_dependence, 0)}&nbsp;%.
      </p>
    </section>
  );
}

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
        <caption>Leading singular directions, both signs</caption>
        <thead>
          <tr>
            <th className="num">Share</th>
            <th>Promoted in one direction</th>
            <th>Promoted in the opposite direction</th>
          </tr>
        </thead>
        <tbody>
          {map.directions.map((direction, i) => (
            <tr key={i}>
              <td className="num">{formatPercent(direction.share, 1)} %</td>
              <td>
                <Tokens tokens={direction.positive_tokens} />
              </td>
              <td>
                <Tokens tokens={direction.negative_tokens} />
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
  readonly dimensions: ExpertMap["largest_scalings"];
}

function OutputGains({ caption, dimensions }: DimensionsProps) {
  return (
    <table className="matrix-table">
      <caption>{caption}</caption>
      <thead>
        <tr>
          <th className="num">Dimension</th>
          <th className="num">Gain c</th>
          <th className="num">Relative to RMS</th>
        </tr>
      </thead>
      <tbody>
        {dimensions.map(({ dimension, scaling, relative }) => (
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

function MatrixSvd({ map }: { readonly map: ExpertMap }) {
  return (
    <>
      <p className="ablation-note">
        <Term id="stable_rank">Stable rank</Term> <b>{formatFixed(map.stable_rank, 1)}</b>.
        {map.small_scaling_share !== null &&
          ` ${formatPercent(map.small_scaling_share, 1)} % of the output dimensions have a gain near zero.`}
      </p>
      <div className="matrix">
        <Directions map={map} />
        {map.largest_scalings.length > 0 && (
          <OutputGains caption="Largest output gains" dimensions={map.largest_scalings} />
        )}
        {map.smallest_scalings.length > 0 && (
          <OutputGains caption="Smallest output gains" dimensions={map.smallest_scalings} />
        )}
      </div>
      <p className="ablation-note">
        Computed from the weights alone. Tokens: final norm and unembedding applied to the direction. Later layers are
        ignored, so in early layers the tokens often mean little. Relative to RMS: |c| divided by its root mean square
        over all experts in that dimension; below 0.1 counts as near zero.
      </p>
    </>
  );
}

/** Whether the run's experts are matrices of a single layer. Transcoder features are single directions. */
export const hasMatrix = (run: RunSummary) => run.method.endsWith("mxd");

export function WeightAnalysis({ run, expert }: { readonly run: string; readonly expert: number }) {
  const [isShown, setShown] = useState(false);
  const { data, error, refetch } = useQuery(expertMapQuery(run, expert, isShown));
  return (
    <section className="pane matrix-pane">
      <div className="pane-h">
        <h2>Weight analysis</h2>
        <span className="note">SVD of its matrix, independent of any text</span>
        <span className="grow" />
        {!isShown && (
          <Button size="small" onClick={() => setShown(true)}>
            Show SVD
          </Button>
        )}
      </div>
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {isShown && error === null && data === undefined && <LoadingState label="Computing SVD" rows={4} />}
      {data !== undefined && <MatrixSvd map={data} />}
    </section>
  );
}
