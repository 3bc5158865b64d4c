/** One prompt, continued without the expert, with it at three strengths, and with a random expert. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { Link } from "react-router";

import { ApiError } from "@/api/http";
import { showcaseQuery } from "@/api/queries";
import type { ExpertDetail, Variant } from "@/api/types";
import { PromptBox } from "@/components/prompt/prompt-box";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { StreamTip } from "@/components/tokens/token-chip";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { TokenStrip } from "@/components/tokens/token-text";
import { Button, LinkButton } from "@/components/ui/button";
import { ErrorState } from "@/components/ui/states";
import { type Edit, formatEdits, newEdit, toHttpEdit } from "@/lib/edits/edits";
import { divergingClass, SCALE_LIMIT } from "@/lib/scales/colour-scale";
import { formatFixed } from "@/lib/text/format";
import {
  changedWords,
  describeProgress,
  type Generation,
  meanKl,
  NO_GENERATION,
  useGeneration,
  type VariantText,
} from "@/pages/steer/steering/texts/generation";

import { useWrites } from "./answers";
import { STEER_PROMPT } from "./expert-params";

/** Multiples of the expert's 99th percentile: weak, usual and strong. */
const STRENGTHS = [1, 2, 3] as const;
/** The random expert's, of its own 99th percentile. */
const [, , STRONGEST] = STRENGTHS;
/** Without a prompt of its own the page waits as long, so that who leafs through experts starts nothing. */
const DELAY_MS = 700;
/** As many as fit one line. */
const MAX_TOKENS = 24;

interface TextProps {
  readonly title: string;
  readonly note: ReactNode;
  readonly variant: Variant;
  readonly generation: Generation;
  readonly isBusy: boolean;
  readonly steeringUrl?: string;
}

function SteeredText({ title, note, variant, generation, isBusy, steeringUrl }: TextProps) {
  const { tokens = [], pieces = [] } = generation[variant].continuations[0] ?? {};
  const kl = meanKl(generation[variant]);
  const { figures } = generation;
  return (
    <section className="steered-row" aria-label={title} aria-busy={isBusy}>
      <header>
        <h3>{title}</h3>
        <span className="dim">{note}</span>
      </header>
      <div className="steered-text" data-outdated={(generation.isOutdated && pieces.length > 0) || undefined}>
        <TokenStrip
          label={title}
          layout="line"
          showBreaks
          className="stream-tokens"
          pieces={pieces.map((piece, i) => (i === 0 ? { ...piece, text: piece.text.trimStart() } : piece))}
          shade={(piece) => (variant === "baseline" ? "" : divergingClass(piece.value ?? 0, SCALE_LIMIT))}
          tip={({ index }) => {
            const token = tokens[index];
            return token === undefined ? null : <StreamTip token={token} />;
          }}
        />
      </div>
      {steeringUrl !== undefined && (
        <>
          <span className="dim num">
            {kl !== null && (
              <>
                <Term id="kl">KL</Term> {formatFixed(kl, 2)}
                {figures !== null && (
                  <>
                    , <Term id="perplexity_ratio">perplexity</Term> × {formatFixed(figures.perplexity_ratio, 1)}
                  </>
                )}
              </>
            )}
          </span>
          <LinkButton size="small" variant="ghost" to={steeringUrl}>
            Open in Steer
          </LinkButton>
        </>
      )}
    </section>
  );
}

const edit = (expert: number, strength: number): Edit => ({ ...newEdit(expert), strength });

/** Of a text that is or will be generated. */
const PENDING = ["idle", "waiting", "streaming"];

/** The texts of a prompt at every strength and the random expert's, generated in one batch on the server. */
function useTexts({ run, detail, prompt, start: first }: TextsOf) {
  const [isStopped, setStopped] = useState(false);
  const { expert } = detail.row;
  const { controls, error } = useWrites(run, detail);
  const random = detail.random_expert ?? undefined;
  const isKnown = controls !== undefined || error !== null;
  const [weak, usual] = STRENGTHS;
  const texts = [
    [edit(expert, weak), useGeneration(run)],
    [edit(expert, usual), useGeneration(run)],
    [edit(expert, STRONGEST), useGeneration(run)],
  ] as const;
  const control = [edit(random ?? expert, STRONGEST), useGeneration(run)] as const;
  useEffect(() => {
    if (!isKnown || isStopped || first === undefined) return undefined;
    const timer = setTimeout(
      () => {
        for (const [one, { start }] of random === undefined ? texts : [...texts, control])
          start({ prompt: prompt || first, edits: [toHttpEdit(one)], sampling: { max_tokens: MAX_TOKENS } });
      },
      prompt === "" ? DELAY_MS : 0,
    );
    return () => clearTimeout(timer);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the strengths are constant, and `start` follows the run
  }, [run, expert, random, isKnown, isStopped, prompt, first]);
  // Its row is there before it is known, so that nothing moves.
  const rows = isKnown && random === undefined ? texts : [...texts, control];
  const pending = rows.find(([, { generation }]) => PENDING.includes(generation.status));
  const state = pending && (describeProgress(pending[1].generation, "steered") || "waiting for what it writes");
  const stop = () => {
    setStopped(true);
    for (const [, generator] of rows) generator.stop();
  };
  return {
    ...{ texts, rows, control: rows === texts ? null : control },
    prompt: prompt || (first ?? ""),
    progress: isStopped ? "Stopped." : state && `${rows.length + 1} texts: ${state}`,
    stop: isStopped || pending === undefined ? null : stop,
    resume: () => setStopped(false),
  };
}

type Shown = ReturnType<typeof useTexts>;

/** The largest rise of a token's log-probability, or of one word's. */
function largestGain({ continuations }: VariantText, word?: string): number {
  const pieces = continuations.flatMap((one) => one.pieces);
  const those = pieces.filter(({ text }) => word === undefined || text.trim().toLowerCase() === word);
  return Math.max(0, ...those.map(({ value }) => value ?? 0));
}

/** How much the strongest text and the random expert's differ, and the words that gained more than any of its. */
function Conclusion({ texts, control, rows }: Shown) {
  if (!rows.every(([, { generation }]) => generation.status === "done")) return null;
  const random = control?.[1].generation.steered ?? NO_GENERATION.steered;
  const strongest = texts[2][1].generation.steered; // at the strength of the random expert
  const [own, noise] = [strongest, random].map((text) => formatFixed(meanKl(text) ?? 0, 2));
  const words = changedWords(strongest, 1).filter((word) => largestGain(strongest, word) > largestGain(random));
  return (
    <>
      On this prompt at +{STRONGEST}: mean KL {own} nats{control !== null && `, ${noise} with the random expert`} (texts
      of at most {MAX_TOKENS} tokens).
      {words.length > 0 && ` Words that gained most, more than any of the random expert’s: “${words.join("”, “")}”.`}
    </>
  );
}

function Texts({ detail: { row }, shown }: Pick<TextsOf, "detail"> & { readonly shown: Shown }) {
  const links = usePageLinks();
  const { texts, rows, prompt } = shown;
  const isBusy = shown.stop !== null;
  const failures = rows.flatMap(([, { generation }]) => generation.failure ?? []);
  return (
    <>
      <div className="steered-texts">
        <SteeredText
          title="Baseline"
          note="no edit"
          variant="baseline"
          generation={texts[0][1].generation}
          isBusy={isBusy}
        />
        {rows.map(([one, { generation }], i) => {
          const isOwn = i < texts.length;
          return (
            <SteeredText
              key={i}
              title={isOwn ? `+${one.strength}` : "Random"}
              note={
                isOwn
                  ? `× p99, adds ${formatFixed(one.strength * row.p99, 1)}`
                  : one.expert !== row.expert && (
                      <>
                        <Link className="link" to={links.expert(one.expert)}>
                          {one.expert}
                        </Link>
                        , +{one.strength}
                      </>
                    )
              }
              variant="steered"
              generation={generation}
              isBusy={isBusy}
              steeringUrl={links.page("steering", { prompt, edits: formatEdits([one]) })}
            />
          );
        })}
      </div>
      <p className="steer-conclusion" role="status" aria-busy={isBusy}>
        {shown.progress === undefined ? <Conclusion {...shown} /> : <span className="dim num">{shown.progress}</span>}
      </p>
      {failures[0] !== undefined && <ErrorState error={new ApiError("generation", failures[0], 0)} />}
    </>
  );
}

interface SteerHereProps {
  readonly run: string;
  readonly detail: ExpertDetail;
  /** The prompt of the texts; empty for the one at first. */
  readonly prompt: string;
  readonly onPrompt: (prompt: string) => void;
}

interface TextsOf extends Omit<SteerHereProps, "onPrompt"> {
  /** The prompt at first: of an expert on Home, the measured one. Undefined while it is unknown. */
  readonly start: string | undefined;
}

/** The prompt at first, which is neutral for most experts. */
function useStart(run: string, expert: number): string | undefined {
  const { data, isPending } = useQuery(showcaseQuery);
  if (isPending) return undefined;
  const { run: shown, steering: { edits = [], prompt = "" } = {} } = data?.showcase?.session ?? {};
  return shown === run && edits.some((edit) => edit.expert === expert) ? prompt : STEER_PROMPT;
}

export function SteerHere({ run, detail, prompt, onPrompt }: SteerHereProps) {
  const start = useStart(run, detail.row.expert);
  const [typed, setDraft] = useState<string | null>(null);
  const draft = typed ?? (prompt || start) ?? "";
  const shown = useTexts({ run, detail, prompt, start });
  const { stop, resume } = shown;
  const submit = () => {
    resume();
    onPrompt(draft);
  };
  return (
    <section className="steer-here" aria-label="Steer here">
      <div className="prompt-row">
        <h2>Steer here</h2>
        <PromptBox
          label="Prompt to steer"
          placeholder="A text to continue"
          draft={{ text: draft, setText: setDraft, commit: submit }}
          onEnter="submit"
          onOpen="leave-focus"
        />
        {stop === null ? (
          <Button variant="primary" icon="steering" disabled={draft.trim() === ""} onClick={submit}>
            Steer
          </Button>
        ) : (
          <Button icon="stop" onClick={stop}>
            Stop
          </Button>
        )}
        <span className="dim num">
          <RampLegend kind="diverging" low={`Δ log p, nats −${SCALE_LIMIT}`} high={`+${SCALE_LIMIT}`} />
        </span>
      </div>
      <Texts detail={detail} shown={shown} />
    </section>
  );
}
