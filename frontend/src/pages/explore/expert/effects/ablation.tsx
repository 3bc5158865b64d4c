/** The measured effect of ablating and amplifying the expert, with baselines. */

import "./ablation.css";

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { expertQuery } from "@/api/queries";
import type { Ablation } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";

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
