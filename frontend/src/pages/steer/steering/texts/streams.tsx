/** Baseline and steered text side by side, below the legend of their colours. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useLayoutEffect, useRef, useState } from "react";

import { ApiError, NO_RESPONSE } from "@/api/http";
import { healthQuery } from "@/api/queries";
import type { Variant } from "@/api/types";
import { Term } from "@/components/terms/term";
import { ChangeTip, StreamTip } from "@/components/tokens/token-chip";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { hideTip, showTip } from "@/components/tokens/tip-layer";
import { TokenStrip } from "@/components/tokens/token-text";
import { CopyButton } from "@/components/ui/copy-button";
import { ErrorState } from "@/components/ui/states";
import { useShortcut } from "@/hooks/use-shortcut";
import { divergingClass } from "@/lib/scales/colour-scale";
import { formatFixed, formatPercent, formatPlural } from "@/lib/text/format";
import { markdownPieces } from "@/lib/text/markdown";
import { markBoundaries } from "@/lib/text/token-text";
import { describeCost, SMALL_KL } from "@/pages/steer/steering/edit-notes";
import type { SteeringLock } from "@/pages/steer/steering/steering-params";
import type { Prices } from "@/pages/steer/steering/use-prices";

import {
  changedWords,
  type Continuation,
  continuationText,
  describeProgress,
  earlyEnd,
  expectedCharacters,
  type Generation,
  hasBothTexts,
  isGrowing,
  isRunning,
  meanKl,
} from "./generation";

/** End of the colour scale in nats. */
export const SCALE_LIMIT = 4;
/** Characters of the prompt shown before each text. */
const MAX_PROMPT_LENGTH = 120;
/** Auto-scrolls if the end is at most this many pixels away. */
const AUTO_SCROLL_DISTANCE = 60;

const shownEnd = (prompt: string) =>
  prompt.length > MAX_PROMPT_LENGTH ? `…${prompt.slice(-MAX_PROMPT_LENGTH)}` : prompt;

interface Hovered {
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
  /** The turns of a chat before the text. Its replies are Markdown. */
  readonly history?: ReactNode;
  readonly lock: SteeringLock | null;
  /** Token under the pointer in either pane; the token at the same position is outlined in the other. */
  readonly hovered: Hovered | null;
  readonly onHover: (hovered: Hovered | null) => void;
  readonly onLock: (lock: SteeringLock | null) => void;
}

interface TextProps extends StreamPaneProps {
  readonly sample: number;
  readonly continuation: Continuation;
}

/** Shows a locked token's tooltip while no other token is hovered. */
function useLockedTip({ variant, sample, continuation, lock, hovered }: TextProps) {
  const box = useRef<HTMLDivElement>(null);
  const position = lock?.variant === variant && lock.sample === sample ? lock.position : null;
  const token = position === null || hovered !== null ? undefined : continuation.tokens[position];
  useEffect(() => {
    const anchor = token && box.current?.querySelector(`[data-token="${position}"]`);
    if (token === undefined || anchor == null) return undefined;
    showTip(anchor, <StreamTip token={token} />, "locked");
    return hideTip;
  }, [position, token]);
  return { box, position };
}

function ContinuationText(props: TextProps) {
  const { variant, sample, continuation, generation, prompt, history, hovered, onHover, onLock } = props;
  const { box, position } = useLockedTip(props);
  const { pieces, styles } =
    history === undefined ? { pieces: continuation.pieces, styles: [] } : markdownPieces(continuation.pieces);
  return (
    <div ref={box} className="stream-text" data-outdated={generation.isOutdated || undefined}>
      <span className="dim">{markBoundaries(shownEnd(prompt))}</span>
      <TokenStrip
        className="stream-tokens"
        label={`${NAMES[variant]} text`}
        pieces={pieces}
        shade={({ value, index }) => `${divergingClass(value ?? 0, SCALE_LIMIT)} ${styles[index] ?? ""}`.trim()}
        peak={hovered?.sample === sample ? hovered.position : null}
        locked={position}
        tip={(piece) => {
          const token = continuation.tokens[piece.index];
          return token === undefined ? <ChangeTip piece={piece} /> : <StreamTip token={token} />;
        }}
        onHover={(piece) => onHover(piece === null ? null : { sample, position: piece.index })}
        onLock={({ index }) => onLock(index === position ? null : { variant, sample, position: index })}
      />
      {isGrowing(generation, variant, sample) && <span className="stream-caret" aria-hidden="true" />}
    </div>
  );
}

const NAMES: Readonly<Record<Variant, string>> = { baseline: "Baseline", steered: "Steered" };

/** Text of about this length keeps the room of what is still to come. */
const roomFor = (characters: number) => `\n${"one of the ".repeat(Math.ceil(characters / 11))}`;

/** The text of one variant while it is generated, each token shaded by its change in log-probability. */
function StreamPane(props: StreamPaneProps) {
  const { variant, generation, prompt, maxTokens, badge, history } = props;
  const { continuations } = generation[variant];
  return (
    <section className="stream-pane" aria-label={NAMES[variant]} aria-busy={isRunning(generation)}>
      <div className="row pane-h">
        <h2>{NAMES[variant]}</h2>
        {badge}
        {generation.isOutdated && continuations.length > 0 && <span className="chip warn">out of date</span>}
        <span className="grow" />
        <span className="note num">
          {isRunning(generation) && <i className="live" aria-hidden="true" />}
          {describeProgress(generation, variant)}
        </span>
        <CopyButton
          size="small"
          variant="ghost"
          aria-label={`Copy the ${variant} text`}
          text={() => continuations.map((one) => prompt + continuationText(one)).join("\n\n---\n\n")}
        />
      </div>
      {history}
      <div
        className="stream-texts"
        data-room={
          history === undefined ? roomFor(expectedCharacters(generation, shownEnd(prompt), maxTokens)) : undefined
        }
      >
        {continuations.map((continuation, sample) => (
          <ContinuationText key={sample} {...props} sample={sample} continuation={continuation} />
        ))}
      </div>
    </section>
  );
}

interface StreamsProps {
  readonly generation: Generation;
  readonly prompt: string;
  /** Tokens that were asked for. */
  readonly maxTokens: number;
  /** Number of edits of the steered text. */
  readonly edits: number;
  /** Their side effects. */
  readonly costs: Prices;
  readonly lock: SteeringLock | null;
  readonly onLock: (lock: SteeringLock | null) => void;
  readonly onGenerate: () => void;
  /** The turns of a chat before each text. */
  readonly history?: (variant: Variant) => ReactNode;
}

/** Why there is no text. Once a server that did not respond is back, the text is generated again. */
function Failed({ failure, onRetry }: { readonly failure: string; readonly onRetry: () => void }) {
  const { dataUpdatedAt } = useQuery(healthQuery);
  const [failedAt] = useState(() => Date.now());
  const isBack = failure === NO_RESPONSE && dataUpdatedAt > failedAt;
  useEffect(() => {
    if (isBack) onRetry();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- once
  }, [isBack]);
  return <ErrorState error={new ApiError("generation", failure, 0)} onRetry={onRetry} />;
}

/** Keeps the end of a chat in view while it grows, unless the user has scrolled up. A stored one is read from its start. */
function useChatEnd({ baseline, steered, status }: Generation, isChat: boolean) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const onScroll = () => {
    if (box.current === null) return;
    const { scrollHeight, scrollTop, clientHeight } = box.current;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < AUTO_SCROLL_DISTANCE;
  };
  useLayoutEffect(() => {
    if (isChat && isAtEnd.current && status !== "stored") box.current?.scrollTo({ top: box.current.scrollHeight });
  }, [baseline, steered, status, isChat]);
  return { ref: box, onScroll };
}

const quoted = (words: readonly string[]) => words.map((word) => `“${word}”`).join(", ");

/** The verdict: the words that the edits gained and lost, how far the texts are apart, and what the edits cost elsewhere. */
function Finding({ generation, edits, costs }: Pick<StreamsProps, "generation" | "edits" | "costs">) {
  const kl = meanKl(generation.steered);
  if (kl === null || generation.isOutdated) return <p className="finding">&nbsp;</p>;
  const [gained, lost] = [changedWords(generation.steered, 1), changedWords(generation.baseline, -1).slice(0, 1)];
  const [price = null] = costs.prices;
  const { done = 0, total = 0 } = costs.progress ?? {};
  return (
    <p className="finding">
      {gained.length > 0 && (
        <>
          <b>{quoted(gained)}</b> gained{lost.length > 0 && <>, {quoted(lost)} lost</>};{" "}
        </>
      )}
      <Term id="kl">KL</Term> {formatFixed(kl, 2)}
      {edits > 0 && kl < SMALL_KL && ", a small effect"}
      {earlyEnd(generation)}
      {price !== null && `; side effects: ${describeCost(price)}`}
      {price === null && costs.working !== -1 && (
        <span className="dim">; side effects: measured {formatPercent(done / Math.max(total, 1), 0)} %</span>
      )}
    </p>
  );
}

export function Streams(props: StreamsProps) {
  const { generation, prompt, maxTokens, edits, costs, lock, onLock, onGenerate, history } = props;
  const [hovered, setHovered] = useState<Hovered | null>(null);
  useShortcut("release", () => onLock(null), lock !== null);
  const scrolled = useChatEnd(generation, history !== undefined);
  const paneProps = { generation, prompt, maxTokens, lock, hovered, onHover: setHovered, onLock };
  return (
    <div className={history === undefined ? "streams" : "streams of-chat"}>
      {generation.failure !== null && <Failed failure={generation.failure} onRetry={onGenerate} />}
      {(generation.failure === null || hasBothTexts(generation)) && (
        <>
          <div className="row wrap stream-head">
            <Finding generation={generation} edits={edits} costs={costs} />
            <RampLegend kind="diverging" low={`Δ log p, nats: −${SCALE_LIMIT}`} high={`+${SCALE_LIMIT}`} />
          </div>
          {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling a chat needs keyboard focus */}
          <div className="stream-panes" tabIndex={history === undefined ? undefined : 0} {...scrolled}>
            <StreamPane variant="baseline" {...paneProps} history={history?.("baseline")} />
            <StreamPane
              variant="steered"
              {...paneProps}
              history={history?.("steered")}
              badge={
                <span className={edits > 0 ? "chip sel" : "chip"}>
                  {edits === 0 ? "no edits" : formatPlural(edits, "edit")}
                </span>
              }
            />
          </div>
        </>
      )}
    </div>
  );
}
