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
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { ErrorState } from "@/components/ui/states";
import { useShortcut } from "@/hooks/use-shortcut";
import { divergingClass, SCALE_LIMIT } from "@/lib/scales/colour-scale";
import { describeEdit, editKey } from "@/lib/edits/edits";
import { formatPlural } from "@/lib/text/format";
import { markdownPieces } from "@/lib/text/markdown";
import { markBoundaries } from "@/lib/text/token-text";
import type { StateProps } from "@/pages/steer/steering/index";
import type { SteeringLock, SteeringState } from "@/pages/steer/steering/steering-params";

import { describeEffect, describeWords, klHere } from "./findings";
import {
  type Continuation,
  continuationText,
  type Control,
  describeProgress,
  expectedCharacters,
  type Generation,
  hasBothTexts,
  isGrowing,
  isRunning,
  NO_TOKENS,
  remainder,
} from "./generation";

/** Characters of the prompt shown before each text. */
const MAX_PROMPT_LENGTH = 120;
/** Auto-scrolls if the end is at most this many pixels away. */
const AUTO_SCROLL_DISTANCE = 60;

const shownEnd = (prompt: string) =>
  prompt.length > MAX_PROMPT_LENGTH ? `…${prompt.slice(-MAX_PROMPT_LENGTH)}` : prompt;

type Hovered = Omit<SteeringLock, "variant">;

interface StreamPaneProps extends StateProps {
  readonly variant: Variant;
  /** The random experts that steer in place of the tray’s. */
  readonly control?: Control;
  /** The prompt that the texts continue. */
  readonly prompt: string;
  readonly badge?: ReactNode;
  /** The turns of a chat before the text. Its replies are Markdown. */
  readonly history?: ReactNode;
  /** Token under the pointer in either pane; the token at the same position is outlined in the other. */
  readonly hovered: Hovered | null;
  readonly onHover: (hovered: Hovered | null) => void;
}

interface TextProps extends StreamPaneProps {
  readonly sample: number;
  readonly continuation: Continuation;
}

/** Shows a locked token's tooltip while no other token is hovered. */
function useLockedTip({ variant, sample, continuation, state, control, hovered }: TextProps) {
  const box = useRef<HTMLDivElement>(null);
  const lock = control === undefined ? state.params.lock : null;
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
  const { variant, sample, continuation, state, control, prompt, history, hovered, onHover } = props;
  const { generation } = control ?? state.generator;
  const maxTokens = state.params.tokens;
  const isCut = !isRunning(generation) && continuation.pieces.length >= maxTokens;
  const { box, position } = useLockedTip(props);
  const { pieces, styles } =
    history === undefined ? { pieces: continuation.pieces, styles: [] } : markdownPieces(continuation.pieces);
  return (
    <div ref={box} className="stream-text" data-outdated={generation.isOutdated || undefined}>
      <span className="dim">{markBoundaries(shownEnd(prompt))}</span>
      <TokenStrip
        className="stream-tokens"
        label={`${control === undefined ? NAMES[variant] : "Control"} text`}
        pieces={pieces}
        shade={({ value, index }) => `${divergingClass(value ?? 0, SCALE_LIMIT)} ${styles[index] ?? ""}`.trim()}
        peak={hovered?.sample === sample ? hovered.position : null}
        locked={position}
        tip={(piece) => {
          const token = continuation.tokens[piece.index];
          return token === undefined ? <ChangeTip piece={piece} /> : <StreamTip token={token} />;
        }}
        onHover={(piece) => onHover(piece === null ? null : { sample, position: piece.index })}
        onLock={({ index }) => {
          const lock = index === position ? null : { variant, sample, position: index };
          if (control === undefined) state.setParams({ lock });
        }}
      />
      {isGrowing(generation, variant, sample) && <span className="stream-caret" aria-hidden="true" />}
      <span className="stale">{remainder(generation, variant, sample)}</span>
      {isCut && (
        <span className="dim" title={`Ends at the limit of ${formatPlural(maxTokens, "token")}`}>
          {" …"}
        </span>
      )}
    </div>
  );
}

const NAMES: Readonly<Record<Variant, string>> = { baseline: "Baseline", steered: "Steered" };

/** Text of about this length keeps the room of what is still to come. */
const roomFor = (characters: number) => `\n${"one of the ".repeat(Math.ceil(characters / 11))}`;

/** The text of one variant while it is generated, each token shaded by its change in log-probability. */
function StreamPane(props: StreamPaneProps) {
  const { variant, state, control, prompt, badge, history } = props;
  const { generation } = control ?? state.generator;
  const { continuations, previous = [] } = generation[variant];
  const name = control === undefined ? NAMES[variant] : "Control";
  const isSame = state.isSame && variant === "steered" && control === undefined;
  const count = Math.max(continuations.length, isRunning(generation) ? previous.length : 0);
  const flaws = variant === "steered" ? generation.figures?.flaws : undefined;
  const room = roomFor(expectedCharacters(generation, shownEnd(prompt), state.params.tokens));
  const isUpdating = isRunning(generation) && (generation.isOutdated ? continuations : previous).length > 0;
  return (
    <section className="stream-pane" aria-label={name} aria-busy={isRunning(generation)}>
      <div className="row pane-h">
        <h2>{control === undefined ? name : <Term id="control_expert">{name}</Term>}</h2>
        {badge}
        {isUpdating && !isSame && <span className="chip warn">updating</span>}
        <span className="grow" />
        {!isSame && (
          <>
            <span className="note num">
              {isRunning(generation) && <i className="live" aria-hidden="true" />}
              {control?.generation.status === "idle" ? "after Steered" : describeProgress(generation, variant)}
            </span>
            <CopyButton
              size="small"
              variant="ghost"
              aria-label={`Copy the ${name.toLowerCase()} text`}
              text={() => continuations.map((one) => prompt + continuationText(one)).join("\n\n---\n\n")}
            />
          </>
        )}
      </div>
      {isSame ? (
        <p className="ink2">
          The tray is empty, so the steered text is the baseline, and one text is generated. Add an expert to the tray
          to steer it.
        </p>
      ) : (
        <>
          {history}
          <div className="stream-texts" data-room={history === undefined ? room : undefined}>
            {Array.from({ length: count }, (_, sample) => (
              <div key={sample} className="stream-sample">
                <ContinuationText {...props} sample={sample} continuation={continuations[sample] ?? NO_TOKENS} />
                {flaws?.[sample] && <p className="card-note warn">{flaws[sample]}</p>}
              </div>
            ))}
          </div>
        </>
      )}
    </section>
  );
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

/** The verdict: the words that the edits gained and lost, and how far the texts are apart. */
function Finding({ state: { generator, control } }: StateProps) {
  const { generation } = generator;
  const effect = describeEffect(generation, control);
  if (generation.isOutdated && effect !== null)
    return <p className="finding dim">Updating. Grey text has the previous settings, until new tokens replace it.</p>;
  if (effect === null) return <p className="finding">&nbsp;</p>;
  const words = describeWords(generation, control);
  return (
    <p className="finding">
      {words !== null && (
        <>
          <b>{words.gained}</b> gained{words.lost};{" "}
        </>
      )}
      <Term id="kl">{klHere(generation)}</Term> {effect}
    </p>
  );
}

/** Texts per variant that the page offers. The settings accept any number. */
const SAMPLES = { 1: "1", 3: "3", 5: "5" };

/** What the colours say, and how many texts there are. */
function Legend({ params, setParams }: SteeringState) {
  return (
    <div className="row wrap dim stream-legend">
      <span title="log p with the edits minus log p without them">Δ log p by the edits, nats</span>
      <RampLegend kind="diverging" low={`suppressed −${SCALE_LIMIT}`} high={`+${SCALE_LIMIT} promoted`} />
      {params.turns.length === 0 && (
        <div className="row">
          Texts
          <SegmentedControl
            label="Texts per variant"
            value={String(params.samples)}
            onChange={(chosen) => setParams({ samples: Number(chosen) })}
            segments={segmentsOf<string>(SAMPLES)}
          />
        </div>
      )}
    </div>
  );
}

/** The random expert's reply, which a chat folds. */
function RandomReply(props: StreamPaneProps & { readonly control: Control }) {
  const { badge, control } = props;
  const [continuation = NO_TOKENS] = control.generation.steered.continuations;
  return (
    <details
      className="random-reply"
      onToggle={({ currentTarget: own }) => own.open && own.scrollIntoView({ block: "nearest" })}
    >
      <summary className="row">
        <span>The random expert’s reply to the steered history</span> {badge}
        <span className="dim num">{describeProgress(control.generation, "steered")}</span>
      </summary>
      <ContinuationText {...props} sample={0} continuation={continuation} />
    </details>
  );
}

interface StreamsProps extends StateProps {
  readonly prompt: string;
  /** The turns of a chat before each text. */
  readonly history?: (variant: Variant) => ReactNode;
}

export function Streams({ state, prompt, history }: StreamsProps) {
  const { generator, control, onControl, params, setParams, edits, isSame, generate } = state;
  const { generation } = generator;
  const [hovered, setHovered] = useState<Hovered | null>(null);
  useShortcut("release", () => setParams({ lock: null }), params.lock !== null);
  const scrolled = useChatEnd(generation, history !== undefined);
  const paneProps = { state, prompt, hovered, onHover: setHovered };
  const badge = control && (
    <span className="chip mono" title={`The same ${formatPlural(control.edits.length, "edit")} of random experts`}>
      {control.edits.map((edit) => `${editKey(edit)} ${describeEdit(edit)}`).join(", ")}
    </span>
  );
  const controlProps = control && { ...paneProps, variant: "steered" as const, control, badge };
  return (
    <div className={history === undefined ? "streams" : "streams of-chat"}>
      {generation.failure !== null && <Failed failure={generation.failure} onRetry={generate} />}
      {(generation.failure === null || hasBothTexts(generation)) && (
        <>
          <div className="stream-head">
            {!isSame && <Finding state={state} />}
            <Legend params={params} setParams={setParams} />
          </div>
          {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling a chat needs keyboard focus */}
          <div className="stream-panes" tabIndex={history === undefined ? undefined : 0} {...scrolled}>
            <StreamPane variant="baseline" {...paneProps} history={history?.("baseline")} />
            <StreamPane
              variant="steered"
              {...paneProps}
              history={history?.("steered")}
              badge={
                <span className={edits.length > 0 ? "chip sel" : "chip"}>
                  {edits.length === 0 ? "no edits" : formatPlural(edits.length, "edit")}
                </span>
              }
            />
            {controlProps && !history && <StreamPane {...controlProps} />}
            {controlProps && history && <RandomReply {...controlProps} history={history("steered")} />}
            {onControl !== null && (
              <p className="no-control dim">
                The random expert’s {history ? "reply" : "text"} is not stored with this session.{" "}
                <button type="button" className="link" onClick={onControl}>
                  Generate it
                </button>
              </p>
            )}
          </div>
        </>
      )}
    </div>
  );
}
