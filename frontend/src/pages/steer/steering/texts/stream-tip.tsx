/** Tooltip of a generated token: change by the edits, alternatives, and active experts. */

import type { TokenEvent } from "@/api/types";
import { AlternativesTip } from "@/components/tokens/alternatives-tip";
import { formatFixed, formatProbability } from "@/lib/text/format";

const MAX_EXPERTS = 5;

export function StreamTip({ token }: { readonly token: TokenEvent }) {
  return (
    <div className="stream-tip">
      <AlternativesTip token={token} />
      <dl>
        <dt>Probability, {token.variant}</dt>
        <dd>{formatProbability(token.probability)} %</dd>
        <dt>KL between variants</dt>
        <dd>{formatFixed(token.kl, 3)} nats</dd>
      </dl>
      <p className="dim">Active experts, before edits</p>
      <ul>
        {token.experts.slice(0, MAX_EXPERTS).map((routed) => (
          <li key={routed.expert}>
            <span className="mono">{routed.expert}</span> {formatFixed(routed.coefficient)}
          </li>
        ))}
      </ul>
    </div>
  );
}
