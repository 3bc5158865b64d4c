/** What a tooltip says about a token under an expert. */

import { formatCount, formatFixed } from "@/lib/format";

import { TokenChip } from "./token-chip";

export interface TokenFacts {
  readonly text: string;
  readonly id: number;
  readonly coefficient: number | null;
  /** The expert's largest coefficient, to compare with. */
  readonly largest: number | null;
  /** Place among the experts active on this token, from 1, and how many there are where that is known. */
  readonly rank?: readonly [number, number?];
  /** Share of the summed norms of what the experts add on this token. */
  readonly share?: number;
}

export function TokenTip({ text, id, coefficient, largest, rank, share }: TokenFacts) {
  return (
    <>
      <div className="hd">
        <TokenChip text={text} />
        <span className="dim">token {formatCount(id)}</span>
      </div>
      {coefficient === null ? (
        <span className="dim">Not active here</span>
      ) : (
        <dl>
          <dt>Coefficient</dt>
          <dd>
            <b>{formatFixed(coefficient, 4)}</b>
          </dd>
          {largest !== null && largest > 0 && (
            <>
              <dt>Share of its largest</dt>
              <dd>{formatFixed((100 * coefficient) / largest, 1)} %</dd>
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
