/** A token with its exact characters, and tooltips of tokens. */

import { Fragment, type ReactNode } from "react";

import type { ExpertEffect, TokenEvent } from "@/api/types";
import { formatCount, formatFixed, formatShare, formatSigned } from "@/lib/text/format";
import type { Piece } from "@/lib/text/kwic";
import { boundaryName, isBoundary, visibleParts, visibleText } from "@/lib/text/token-text";

export function TokenChip({ text }: { readonly text: string }) {
  return (
    <span className="tk" title={isBoundary(text) ? boundaryName(text) : undefined}>
      {visibleParts(text).map((part, i) => (part.isSymbol ? <i key={i}>{part.text}</i> : part.text))}
    </span>
  );
}

interface TokenChipsProps {
  readonly tokens: readonly (string | { readonly text: string })[];
  /** At most so many. */
  readonly first?: number;
  readonly className?: string;
}

export const TokenChips = ({ tokens, first = tokens.length, className = "chips" }: TokenChipsProps) => (
  <span className={className}>
    {tokens.slice(0, first).map((token, i) => (
      <TokenChip key={i} text={typeof token === "string" ? token : token.text} />
    ))}
  </span>
);

/** Without those that differ from an earlier one in case and spaces only. */
export function distinctWords<T extends { readonly text: string }>(tokens: readonly T[]): readonly T[] {
  const words = tokens.map(({ text }) => text.trim().toLowerCase());
  return tokens.filter((_, i) => words.indexOf(words[i] ?? "") === i);
}

/** Whether a token is a word by itself, and no part of a word or of a character. */
export const isWholeWord = (text: string) => /^ (\p{L}{2,}|[AIa])$/u.test(text);

/** Tokens that an expert promotes, each with the change of its logit. */
export const Promoted = ({ tokens }: { readonly tokens: ExpertEffect["promoted"] }) =>
  tokens.map(({ id, text, change }) => (
    <span key={id}>
      <TokenChip text={text} /> <span className="num up">{formatSigned(change, 2)}</span>
    </span>
  ));

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

/** Names and values; false for none. */
export const TipFacts = ({ facts }: { readonly facts: readonly (false | readonly [string, ReactNode])[] }) => (
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
          {isBoundary(text) && `${boundaryName(text)}, `}token id {formatCount(id)}
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

const MAX_EXPERTS = 5;

/** A token and its change of log-probability by the edits, whose value a piece has. */
export function ChangeTip({ piece: { text, value } }: { readonly piece: Pick<Piece, "text" | "value"> }) {
  const delta = value ?? 0;
  return (
    <div className="hd">
      <TokenChip text={text} />
      <span className="dim">Δ log p by the edits</span>
      <b className={delta > 0 ? "up" : delta < 0 ? "down" : ""}>{formatSigned(delta)}</b>
    </div>
  );
}

/** Tooltip of a generated token: change by the edits, alternatives, and active experts. */
export function StreamTip({ token }: { readonly token: TokenEvent }) {
  const isSteered = token.variant === "steered";
  return (
    <div className="stream-tip">
      <ChangeTip piece={{ text: token.text, value: token.delta_log_probability }} />
      <div className="two-alternatives">
        {(["Baseline", "Steered"] as const).map((title) => (
          <table key={title} className="alternatives">
            <thead>
              <tr>
                <th colSpan={2} className="dim">
                  {title} %
                </th>
              </tr>
            </thead>
            <tbody>
              {(isSteered === (title === "Steered") ? token.alternatives : token.other_alternatives).map(
                ({ id, text, probability }) => (
                  <tr key={id} className={id === token.id ? "chosen" : ""}>
                    <td className="mono">{visibleText(text)}</td>
                    <td className="num">{formatShare(probability, 1)}</td>
                  </tr>
                ),
              )}
            </tbody>
          </table>
        ))}
      </div>
      <TipFacts
        facts={[
          [`Probability, ${token.variant}`, `${formatShare(token.probability, 1)} %`],
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
