/** Next-token probabilities after a token, with the original MLP and with the layer. */

import type { PredictedToken } from "@/api/types";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatFixed, formatProbability, formatSigned } from "@/lib/text/format";

const MAX_TOKENS = 8;

interface NextTokenProps {
  /** undefined while loading. */
  readonly token: PredictedToken | undefined;
  readonly method: string;
}

const roundedPercent = (probability: number) => Number((100 * probability).toFixed(1));

/** The difference between the two numbers as shown. */
function Change({ original, replaced }: { readonly original: number; readonly replaced: number }) {
  const text = formatSigned(roundedPercent(replaced) - roundedPercent(original), 1);
  const side = text.startsWith("+") ? "up" : text.startsWith("−") ? "down" : "";
  return <td className={`num change ${side}`}>{text}</td>;
}

export function NextToken({ token, method }: NextTokenProps) {
  const shown = token?.predictions.slice(0, MAX_TOKENS) ?? [];
  const largestProbability = shown.reduce((largest, next) => Math.max(largest, next.original, next.replaced), 1e-9);
  const bar = (probability: number) => ({ width: `${(100 * probability) / largestProbability}%` });
  return (
    <section className="next-token" aria-busy={token === undefined}>
      <div className="pane-h">
        <h2>Next token</h2>
        <span className="grow" />
        <span className="note">
          <Term id="kl">KL</Term> {token === undefined ? "…" : formatFixed(token.kl, 3)} nats, MLP removed{" "}
          {token === undefined ? "…" : formatFixed(token.zeroed_kl, 3)}
        </span>
      </div>
      <table>
        <thead>
          <tr>
            <th>
              <span className="sr">Token</span>
            </th>
            <th colSpan={2} className="num">
              Original <span className="unit">%</span>
            </th>
            <th colSpan={2} className="num">
              {method} <span className="unit">%</span>
            </th>
            <th className="num">Change</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((next) => (
            <tr key={next.id}>
              <td className="what">
                <TokenChip text={next.text} />
              </td>
              <td className="b">
                <i style={bar(next.original)} />
              </td>
              <td className="num">{formatProbability(next.original)}</td>
              <td className="b x">
                <i style={bar(next.replaced)} />
              </td>
              <td className="num">{formatProbability(next.replaced)}</td>
              <Change {...next} />
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
