/** A text whose tokens can be hovered and locked. */

import type { Piece } from "@/lib/text/kwic";

import { TokenGroup, type TokenHandlers } from "./token-group";
import { TokenText, type TokenTextProps } from "./token-text";

interface TokenStripProps extends TokenTextProps, TokenHandlers {
  readonly label: string;
  readonly className?: string;
}

function firstLive(pieces: readonly Piece[], isLive: ((piece: Piece) => boolean) | undefined): number | null {
  return pieces.find(isLive ?? ((piece) => piece.value !== null))?.index ?? null;
}

export function TokenStrip({ label, className = "text", tip, onHover, onLock, ...text }: TokenStripProps) {
  const tabStop = text.tabStop ?? text.locked ?? text.peak ?? firstLive(text.pieces, text.isLive);
  return (
    <TokenGroup label={label} className={className} pieces={text.pieces} tip={tip} onHover={onHover} onLock={onLock}>
      <TokenText layout="block" {...text} tabStop={tabStop} />
    </TokenGroup>
  );
}
