/** The prompt as tokens with the expert's activation under each. */

import { useMemo } from "react";

import type { ExpertRow, RoutedToken } from "@/api/types";
import { TokenGroup } from "@/components/tokens/token-group";
import { LiveToken } from "@/components/tokens/token-text";
import { TokenTip } from "@/components/tokens/token-tip";
import { sequentialClass } from "@/lib/scales/colour-scale";
import { formatFixed } from "@/lib/text/format";
import type { Piece } from "@/lib/text/kwic";
import { toOneLine, splitLeadingSpace } from "@/lib/text/token-text";

import { promptPieces, wordGroups } from "./routed-tokens";

interface RoutedPromptProps {
  readonly tokens: readonly RoutedToken[];
  readonly row: ExpertRow;
  readonly locked: number | null;
  readonly onHover: (index: number | null) => void;
  readonly onLock: (index: number) => void;
}

interface PromptTokenProps {
  readonly piece: Piece;
  readonly largest: number;
  readonly isLocked: boolean;
}

function PromptToken({ piece, largest, isLocked }: PromptTokenProps) {
  const { leadingSpace, body } = splitLeadingSpace(toOneLine(piece.text, true));
  return (
    <span className={leadingSpace === "" ? "tc tight" : "tc"}>
      <LiveToken
        piece={piece}
        text={body}
        className={sequentialClass(piece.value ?? 0, largest)}
        isLocked={isLocked}
        isTabStop={isLocked}
      />
      <small>{piece.value === null ? "\u00a0" : formatFixed(piece.value, 1)}</small>
    </span>
  );
}

export function RoutedPrompt({ tokens, row, locked, onHover, onLock }: RoutedPromptProps) {
  const pieces = useMemo(() => promptPieces(tokens, row.expert), [tokens, row.expert]);
  const tip = (piece: Piece) => {
    const experts = tokens[piece.index]?.experts ?? [];
    const index = experts.findIndex((routed) => routed.expert === row.expert);
    const share = experts[index]?.share;
    return (
      <TokenTip
        text={piece.text}
        id={piece.id}
        coefficient={piece.value}
        largest={row.max_activation}
        {...(index >= 0 && { rank: [index + 1, experts.length] as const })}
        {...(share !== undefined && { share })}
      />
    );
  };
  return (
    <TokenGroup
      label="Prompt"
      className="prompt"
      pieces={pieces}
      tip={tip}
      onHover={(piece) => onHover(piece?.index ?? null)}
      onLock={(piece) => onLock(piece.index)}
    >
      {wordGroups(pieces).map((word) => (
        <span key={word[0]?.index} className="word">
          {word.map((piece) => (
            <PromptToken
              key={piece.index}
              piece={piece}
              largest={row.max_activation}
              isLocked={piece.index === locked}
            />
          ))}
        </span>
      ))}
    </TokenGroup>
  );
}
