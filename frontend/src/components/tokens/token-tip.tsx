/** Tooltip of a token with an expert's activation. */

import { Fragment, type ReactNode } from "react";

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

interface TipFactsProps {
  /** Names and values; false for none. */
  readonly facts: readonly (false | readonly [string, ReactNode])[];
}

export const TipFacts = ({ facts }: TipFactsProps) => (
  <dl>
    {facts.map(
      (fact) =>
        fact !== false && (
          <Fragment key={fact[0]}>
            <dt>{fact[0]}</dt>
            <dd>{fact[1]}</dd>
          </Fragment>
        ),
    )}
  </dl>
);

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
        <TipFacts
          facts={[
            ["Activation", <b>{formatFixed(activation, 4)}</b>],
            largest !== null &&
              largest > 0 && ["Share of maximum", `${formatFixed((100 * activation) / largest, 1)} %`],
            rank !== undefined && ["Rank on this token", rank[1] === undefined ? rank[0] : `${rank[0]} of ${rank[1]}`],
            share !== undefined && ["Share of output norm", `${formatFixed(100 * share, 1)} %`],
          ]}
        />
      )}
    </>
  );
}
