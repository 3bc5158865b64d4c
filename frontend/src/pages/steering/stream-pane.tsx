/** One arm's text as it comes, each token shaded by how much likelier the edits make it. */

import { type ReactNode, useEffect, useLayoutEffect, useRef } from "react";

import type { Arm, TokenEvent } from "@/api/types";
import { TokenStrip } from "@/components/tokens/token-strip";
import { useTips } from "@/components/tokens/tip-layer";
import { divergingClass } from "@/lib/colour-scale";
import type { Piece } from "@/lib/kwic";

import { armInWords, type Continuation, type Generation, isGrowing, isRunning } from "./generation";
import type { SteeringLock } from "./steering-params";
import { StreamTip } from "./stream-tip";

/** Nats at which the scale ends. */
export const DELTA_LIMIT = 4;
/** Characters of the prompt that stand before each text. */
const PROMPT_SHOWN = 120;
/** Pixels from the end within which a pane follows its text. */
const FOLLOWS = 60;

const shade = (piece: Piece) => divergingClass(piece.value ?? 0, DELTA_LIMIT);

export interface Hovered {
  readonly sample: number;
  readonly position: number;
}

export interface StreamPaneProps {
  readonly arm: Arm;
  readonly generation: Generation;
  /** What the texts go on from. */
  readonly prompt: string;
  readonly badge?: ReactNode;
  readonly lock: SteeringLock | null;
  /** Token under the pointer in either pane: its twin is outlined in the other. */
  readonly hovered: Hovered | null;
  readonly onHover: (hovered: Hovered | null) => void;
  readonly onLock: (lock: SteeringLock | null) => void;
}

interface TextProps extends Omit<StreamPaneProps, "badge"> {
  readonly sample: number;
  readonly continuation: Continuation;
}

function tipOf(tokens: readonly TokenEvent[], index: number) {
  const token = tokens[index];
  return token === undefined ? null : <StreamTip token={token} />;
}

/** Shows a locked token's tooltip whenever no other token is pointed at. */
function useHeldTip({ arm, sample, continuation, lock, hovered }: TextProps) {
  const box = useRef<HTMLDivElement>(null);
  const tips = useTips();
  const position = lock?.arm === arm && lock.sample === sample ? lock.position : null;
  const token = position === null || hovered !== null ? undefined : continuation.tokens[position];
  useEffect(() => {
    if (token === undefined || position === null) return undefined;
    const anchor = box.current?.querySelector(`[data-token="${position}"]`);
    if (anchor == null) return undefined;
    tips.show(anchor, <StreamTip token={token} />, "held");
    return tips.hide;
  }, [position, tips, token]);
  return { box, position };
}

function ContinuationText(props: TextProps) {
  const { arm, sample, continuation, generation, prompt, hovered, onHover, onLock } = props;
  const { box, position } = useHeldTip(props);
  const shown = prompt.length > PROMPT_SHOWN ? `…${prompt.slice(-PROMPT_SHOWN)}` : prompt;
  return (
    <div ref={box} className="stream-text" data-outdated={generation.isOutdated || undefined}>
      <span className="stream-prompt">{shown}</span>
      <TokenStrip
        className="stream-tokens"
        label={arm === "default" ? "Default text" : "Steered text"}
        pieces={continuation.pieces}
        shade={shade}
        peak={hovered?.sample === sample ? hovered.position : null}
        locked={position}
        tip={(piece) => tipOf(continuation.tokens, piece.index)}
        onHover={(piece) => onHover(piece === null ? null : { sample, position: piece.index })}
        onLock={(piece) => onLock(piece.index === position ? null : { arm, sample, position: piece.index })}
      />
      {isGrowing(generation, arm, sample) && <span className="stream-caret" aria-hidden="true" />}
    </div>
  );
}

/** Keeps the end in view while a text grows, unless the reader has scrolled away from it. */
function useFollow(count: number, isOne: boolean) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const onScroll = () => {
    if (box.current === null) return;
    const { scrollHeight, scrollTop, clientHeight } = box.current;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < FOLLOWS;
  };
  useLayoutEffect(() => {
    if (isOne && isAtEnd.current) box.current?.scrollTo({ top: box.current.scrollHeight });
  }, [count, isOne]);
  return { box, onScroll };
}

const NAMES: Readonly<Record<Arm, string>> = { default: "Default", steered: "Steered" };

export function StreamPane({ badge, ...props }: StreamPaneProps) {
  const { arm, generation } = props;
  const { continuations } = generation[arm];
  const count = continuations.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const { box, onScroll } = useFollow(count, continuations.length === 1);
  return (
    <section className="stream-pane" aria-label={NAMES[arm]} aria-busy={isRunning(generation)}>
      <div className="pane-h">
        <h2>{NAMES[arm]}</h2>
        {badge}
        <span className="grow" />
        <span className="note num">
          {isRunning(generation) && <i className="live" aria-hidden="true" />}
          {armInWords(generation, arm)}
        </span>
      </div>
      <div ref={box} className="stream-box" onScroll={onScroll}>
        {continuations.map((continuation, sample) => (
          <ContinuationText key={sample} {...props} sample={sample} continuation={continuation} />
        ))}
      </div>
    </section>
  );
}
