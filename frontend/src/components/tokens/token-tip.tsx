/** Tooltip of a token with an expert's activation. */

import { formatCount, formatFixed } from "@/lib/text/format";
import { boundaryName, isBoundary } from "@/lib/text/token-text";

import { TokenChip } from "./token-chip";

interface TokenTipProps {
  readonly text: string;
  readonly id: number;
  readonly activation: number | null;
  /** The expert's largest activation. */
  readonly largest: number | null;
  /** Rank among the token's active experts, starting at 1, and their number, if known. */
  readonly rank?: readonly [number, number?];
  /** Share of the summed L2 norms of all active experts' outputs on this token. */
  readonly share?: number;
}

export function TokenTip({ text, id, activation, largest, rank, share }: TokenTipProps) {
  return (
    <>
      <div className="hd">
        <TokenChip text={text} />
        <span className="dim">
          {isBoundary(text) && `${boundaryName(text)}, `}token {formatCount(id)}
        </span>
      </div>
      {activation === null ? (
        <span className="dim">Not active here</span>
      ) : (
        <dl>
          <dt>Activation</dt>
          <dd>
            <b>{formatFixed(activation, 4)}</b>
          </dd>
          {largest !== null && largest > 0 && (
            <>
              <dt>Share of maximum</dt>
              <dd>{formatFixed((100 * activation) / largest, 1)} %</dd>
            </>
          )}
          {rank !== undefined && (
            <>
              <dt>Rank on this token</dt>
              <dd>
                {rank[0]}
                {rank[1] !== undefined && ` of ${rank[1]}`}
              </dd>
            </>
          )}
          {share !== undefined && (
            <>
              <dt>Share of output norm</dt>
              <dd>{formatFixed(100 * share, 1)} %</dd>
            </>
          )}
        </dl>
      )}
    </>
  );
}
