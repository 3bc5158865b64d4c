/** Header of the heat map: one column per token, and the KL divergence that the layer causes after it. */

import { Term } from "@/components/terms/term";
import { columnText, type ColumnWindow } from "./columns";
import { RANKING_HEADERS } from "./heat-row";
import { type Column, formatKl, type Predicted, type Ranking } from "./heat-rows";

interface HeatHeadProps {
  readonly columns: readonly Column[];
  readonly window: ColumnWindow;
  readonly ranking: Ranking;
  readonly locked: number | null;
  readonly predicted: Predicted;
}

const KL_BAR = 22;

function Tokens({ columns, window, ranking, locked }: HeatHeadProps) {
  const after = columns.length - window.to;
  const tabStop = locked ?? columns[window.from]?.position;
  return (
    <tr className="tokens">
      <th className="c0" scope="col">
        Token
      </th>
      {window.from > 0 && <td colSpan={window.from} />}
      {columns.slice(window.from, window.to).map(({ position, token }) => (
        <th key={position} scope="col" className={position === locked ? "lk" : undefined}>
          <button
            type="button"
            tabIndex={position === tabStop ? 0 : -1}
            data-position={position}
            aria-pressed={position === locked}
            className="tokb"
          >
            {columnText(token.text)}
          </button>
        </th>
      ))}
      {after > 0 && <td colSpan={after} />}
      <th className="num sum" scope="col">
        {RANKING_HEADERS[ranking]}
      </th>
    </tr>
  );
}

function Divergence({ kl, largestKl }: { readonly kl: number; readonly largestKl: number }) {
  return (
    <>
      <span className="klb" style={{ height: Math.max(1, Math.round((KL_BAR * kl) / largestKl)) }} />
      <small>{formatKl(kl)}</small>
    </>
  );
}

function Divergences({ columns, window, locked, predicted }: HeatHeadProps) {
  const klAt = (position: number) => predicted?.[position]?.kl;
  const largestKl = columns.reduce((largest, { position }) => Math.max(largest, klAt(position) ?? 0), 1e-9);
  const after = columns.length - window.to;
  return (
    <tr className="klr" aria-busy={predicted === undefined}>
      <th className="c0" scope="row">
        <Term id="kl">KL from original</Term> <span className="unit">nats</span>
      </th>
      {window.from > 0 && <td colSpan={window.from} />}
      {columns.slice(window.from, window.to).map(({ position }) => {
        const kl = klAt(position);
        return (
          <td key={position} className={position === locked ? "lk" : undefined}>
            {kl !== undefined && <Divergence kl={kl} largestKl={largestKl} />}
          </td>
        );
      })}
      {after > 0 && <td colSpan={after} />}
      <td className="sum" />
    </tr>
  );
}

export function HeatHead(props: HeatHeadProps) {
  return (
    <thead>
      <Tokens {...props} />
      <Divergences {...props} />
    </thead>
  );
}
