/** Tooltip of a generated token. */

import type { TokenEvent } from "@/api/types";
import { formatFixed, formatProbability, formatSigned } from "@/lib/text/format";
import { visibleText } from "@/lib/text/token-text";

import { TokenChip } from "./token-chip";
import { TipFacts } from "./token-tip";

const MAX_EXPERTS = 5;

/** Tooltip of a generated token: change by the edits, alternatives, and active experts. */
export function StreamTip({ token }: { readonly token: TokenEvent }) {
  const isSteered = token.variant === "steered";
  const delta = token.delta_log_probability;
  return (
    <div className="stream-tip">
      <div className="hd">
        <TokenChip text={token.text} />
        <span className="dim">Δ log p</span>
        <b className={delta > 0 ? "up" : delta < 0 ? "down" : ""}>{formatSigned(delta)}</b>
      </div>
      <div className="two-alternatives">
        {(["Baseline", "Steered"] as const).map((title) => (
          <table key={title} className="alternatives">
            <thead>
              <tr>
                <th colSpan={2}>{title} %</th>
              </tr>
            </thead>
            <tbody>
              {(isSteered === (title === "Steered") ? token.alternatives : token.other_alternatives).map(
                ({ id, text, probability }) => (
                  <tr key={id} className={id === token.id ? "chosen" : ""}>
                    <td className="mono">{visibleText(text)}</td>
                    <td className="num">{formatProbability(probability)}</td>
                  </tr>
                ),
              )}
            </tbody>
          </table>
        ))}
      </div>
      <TipFacts
        facts={[
          [`Probability, ${token.variant}`, `${formatProbability(token.probability)} %`],
          ["KL between variants", `${formatFixed(token.kl, 3)} nats`],
        ]}
      />
      <p className="dim">Active experts, before edits</p>
      <ul>
        {token.experts.slice(0, MAX_EXPERTS).map((routed) => (
          <li key={routed.expert}>
            <span className="mono">{routed.expert}</span> {formatFixed(routed.activation)}
          </li>
        ))}
      </ul>
    </div>
  );
}
