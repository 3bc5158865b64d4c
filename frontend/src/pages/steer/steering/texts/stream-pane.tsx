/** The text of one variant while it is generated, each token shaded by its change in log-probability. */

import { type CSSProperties, type ReactNode, useEffect, useLayoutEffect, useRef } from "react";

import type { Variant, TokenEvent } from "@/api/types";
import { useTips } from "@/components/tokens/tip-layer";
import { TokenStrip } from "@/components/tokens/token-strip";
import { divergingClass } from "@/lib/scales/colour-scale";
import type { Piece } from "@/lib/text/kwic";
import { markBoundaries } from "@/lib/text/token-text";
import type { SteeringLock } from "@/pages/steer/steering/steering-params";

import {
  describeProgress,
  type Continuation,
  expectedCharacters,
  type Generation,
  isGrowing,
  isRunning,
} from "./generation";
import { StreamTip } from "./stream-tip";

/** End of the colour scale in nats. */
export const SCALE_LIMIT = 4;
/** Characters of the prompt shown before each text. */
const MAX_PROMPT_LENGTH = 120;
/** Auto-scrolls if the end is at most this many pixels away. */
const AUTO_SCROLL_DISTANCE = 60;

const shade = (piece: Piece) => divergingClass(piece.value ?? 0, SCALE_LIMIT);

export interface Hovered {
  readonly sample: number;
  readonly position: number;
}

interface StreamPaneProps {
  readonly variant: Variant;
  readonly generation: Generation;
  /** The prompt that the texts continue. */
  readonly prompt: string;
  /** Tokens that were asked for. */
  readonly maxTokens: number;
  readonly badge?: ReactNode;
  /** The turns of a chat before the text. */
  readonly history?: ReactNode;
  readonly lock: SteeringLock | null;
  /** Token under the pointer in either pane; the token at the same position is outlined in the other. */
  readonly hovered: Hovered | null;
  readonly onHover: (hovered: Hovered | null) => void;
  readonly onLock: (lock: SteeringLock | null) => void;
}

interface TextProps extends Omit<StreamPaneProps, "badge" | "history" | "maxTokens"> {
  readonly sample: number;
  readonly continuation: Continuation;
}

function tokenTip(tokens: readonly TokenEvent[], index: number) {
  const token = tokens[index];
  return token === undefined ? null : <StreamTip token={token} />;
}

/** Shows a locked token's tooltip while no other token is hovered. */
function useLockedTip({ variant, sample, continuation, lock, hovered }: TextProps) {
  const box = useRef<HTMLDivElement>(null);
  const tips = useTips();
  const position = lock?.variant === variant && lock.sample === sample ? lock.position : null;
  const token = position === null || hovered !== null ? undefined : continuation.tokens[position];
  useEffect(() => {
    if (token === undefined || position === null) return undefined;
    const anchor = box.current?.querySelector(`[data-token="${position}"]`);
    if (anchor == null) return undefined;
    tips.show(anchor, <StreamTip token={token} />, "locked");
    return tips.hide;
  }, [position, tips, token]);
  return { box, position };
}

function ContinuationText(props: TextProps) {
  const { variant, sample, continuation, generation, prompt, hovered, onHover, onLock } = props;
  const { box, position } = useLockedTip(props);
  const shown = prompt.length > MAX_PROMPT_LENGTH ? `…${prompt.slice(-MAX_PROMPT_LENGTH)}` : prompt;
  return (
    <div ref={box} className="stream-text" data-outdated={generation.isOutdated || undefined}>
      <span className="stream-prompt">{markBoundaries(shown)}</span>
      <TokenStrip
        className="stream-tokens"
        label={variant === "baseline" ? "Baseline text" : "Steered text"}
        pieces={continuation.pieces}
        shade={shade}
        peak={hovered?.sample === sample ? hovered.position : null}
        locked={position}
        tip={(piece) => tokenTip(continuation.tokens, piece.index)}
        onHover={(piece) => onHover(piece === null ? null : { sample, position: piece.index })}
        onLock={(piece) =>
          onLock(piece.index === position ? null : { variant: variant, sample, position: piece.index })
        }
      />
      {isGrowing(generation, variant, sample) && <span className="stream-caret" aria-hidden="true" />}
    </div>
  );
}

/** Auto-scroll while a text grows, unless the user has scrolled up. Finished texts begin at the top, to be compared; a chat stays at its end. */
function useAutoScroll(count: number, isSingle: boolean, isGrowing: boolean, isChat: boolean) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const onScroll = () => {
    if (box.current === null) return;
    const { scrollHeight, scrollTop, clientHeight } = box.current;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < AUTO_SCROLL_DISTANCE;
  };
  useLayoutEffect(() => {
    if (isSingle && isAtEnd.current) box.current?.scrollTo({ top: box.current.scrollHeight });
  }, [count, isSingle]);
  useLayoutEffect(() => {
    if (!isGrowing) box.current?.scrollTo({ top: isChat ? box.current.scrollHeight : 0 });
  }, [isGrowing, isChat]);
  return { box, onScroll };
}

const NAMES: Readonly<Record<Variant, string>> = { baseline: "Baseline", steered: "Steered" };

export function StreamPane({ badge, history, ...props }: StreamPaneProps) {
  const { variant, generation, prompt, maxTokens } = props;
  const { continuations } = generation[variant];
  const count = continuations.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const { box, onScroll } = useAutoScroll(
    count,
    continuations.length === 1,
    isRunning(generation),
    history !== undefined,
  );
  return (
    <section className="stream-pane" aria-label={NAMES[variant]} aria-busy={isRunning(generation)}>
      <div className="pane-h">
        <h2>{NAMES[variant]}</h2>
        {badge}
        <span className="grow" />
        <span className="note num">
          {isRunning(generation) && <i className="live" aria-hidden="true" />}
          {describeProgress(generation, variant)}
        </span>
      </div>
      <div
        ref={box}
        className="stream-box"
        style={{ "--expected-characters": expectedCharacters(generation, prompt, maxTokens) } as CSSProperties}
        onScroll={onScroll}
      >
        {history}
        {continuations.map((continuation, sample) => (
          <ContinuationText key={sample} {...props} sample={sample} continuation={continuation} />
        ))}
      </div>
    </section>
  );
}
