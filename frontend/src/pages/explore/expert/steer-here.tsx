/** One prompt, continued without the expert and with it at three strengths, on one click. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { ApiError } from "@/api/http";
import { writesQuery } from "@/api/queries";
import type { ExpertDetail, TokenEffect, Variant } from "@/api/types";
import { formatValue } from "@/components/experts/columns";
import { PromptBox } from "@/components/prompt/prompt-box";
import { usePageLinks } from "@/components/runs/page-links";
import { ColumnTerm, Term } from "@/components/terms/term";
import { StreamTip } from "@/components/tokens/token-chip";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { TokenStrip } from "@/components/tokens/token-text";
import { Button, LinkButton } from "@/components/ui/button";
import { ErrorState } from "@/components/ui/states";
import { useColumns } from "@/hooks/use-experts";
import { type Edit, formatEdits, newEdit, toHttpEdit } from "@/lib/edits/edits";
import { divergingClass } from "@/lib/scales/colour-scale";
import { formatFixed } from "@/lib/text/format";
import {
  describeProgress,
  type Generation,
  isRunning,
  meanKl,
  useGeneration,
} from "@/pages/steer/steering/texts/generation";
import { SCALE_LIMIT } from "@/pages/steer/steering/texts/streams";

import { STEER_PROMPT } from "./expert-params";

/** Multiples of the expert's 99th percentile: weak, usual and strong. */
const STRENGTHS = [1, 2, 4] as const;
/** As many as fit one line. */
const MAX_TOKENS = 24;

interface TextProps {
  readonly title: string;
  readonly note: string;
  readonly variant: Variant;
  readonly generation: Generation;
  readonly steeringUrl?: string;
}

function SteeredText({ title, note, variant, generation, steeringUrl }: TextProps) {
  const { tokens = [], pieces = [] } = generation[variant].continuations[0] ?? {};
  const kl = meanKl(generation[variant]);
  return (
    <section aria-label={title} aria-busy={isRunning(generation)}>
      <header>
        <h3>{title}</h3>
        <span className="dim">{note}</span>
      </header>
      <div className="steered-text" data-outdated={generation.isOutdated || undefined}>
        {pieces.length === 0 && <span className="dim">{describeProgress(generation, variant)}</span>}
        <TokenStrip
          label={title}
          className="stream-tokens"
          pieces={pieces.map((piece, i) => (i === 0 ? { ...piece, text: piece.text.trimStart() } : piece))}
          shade={(piece) => (variant === "baseline" ? "" : divergingClass(piece.value ?? 0, SCALE_LIMIT))}
          tip={({ index }) => {
            const token = tokens[index];
            return token === undefined ? null : <StreamTip token={token} />;
          }}
        />
      </div>
      <span className="dim num">
        {steeringUrl !== undefined && kl !== null && (
          <>
            <Term id="kl">KL</Term> {formatFixed(kl, 2)}
          </>
        )}
      </span>
      {steeringUrl !== undefined && (
        <LinkButton size="small" variant="ghost" to={steeringUrl}>
          Open in Steer
        </LinkButton>
      )}
    </section>
  );
}

/** The texts of a prompt at every strength, generated in one batch on the server. */
function useTexts(run: string, expert: number, prompt: string) {
  const [weak, usual, strong] = STRENGTHS;
  const edit = (strength: number): Edit => ({ ...newEdit(expert), strength });
  const texts = [
    [edit(weak), useGeneration(run)],
    [edit(usual), useGeneration(run)],
    [edit(strong), useGeneration(run)],
  ] as const;
  useEffect(() => {
    for (const [one, { start }] of texts)
      start({ prompt, edits: [toHttpEdit(one)], sampling: { max_tokens: MAX_TOKENS } });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the strengths are constant, and `start` follows the run
  }, [run, expert, prompt]);
  return texts;
}

function textOf(generation: Generation, variant: Variant): string {
  return generation[variant].continuations[0]?.pieces.map(({ text }) => text).join("") ?? "";
}

const STEM = 4;

/** Words of a text that begin like one of the promoted words, as “young” like “youngest”, and are not in the baseline. */
export function promotedIn(text: string, baseline: string, promoted: readonly Pick<TokenEffect, "text">[]) {
  const wordsOf = (one: string) => new Set(one.toLowerCase().match(/\p{L}+/gu));
  const stems = promoted
    .map((token) => token.text.trim().toLowerCase())
    .filter((word) => word.length >= STEM)
    .map((word) => word.slice(0, Math.max(STEM, Math.ceil(word.length / 2))));
  const before = wordsOf(baseline);
  return [...wordsOf(text)].filter((word) => !before.has(word) && stems.some((stem) => word.startsWith(stem)));
}

/** Whether the texts show what the expert promotes. */
function Conclusion({ run, detail, texts }: Omit<SteerHereProps, "onPrompt" | "prompt"> & { readonly texts: Texts }) {
  const { row, ablation } = detail;
  const { data } = useQuery({ ...writesQuery(run, row.expert), enabled: ablation === null });
  const promoted = ablation?.promoted ?? data?.writes.promoted;
  const isDone = texts.every(([, { generation }]) => generation.status === "done");
  if (!isDone || promoted === undefined) return null;
  const baseline = textOf(texts[0][1].generation, "baseline");
  const written = texts
    .map(([{ strength }, { generation }]) => ({
      strength,
      words: promotedIn(textOf(generation, "steered"), baseline, promoted),
    }))
    .find(({ words }) => words.length > 0);
  return (
    <p className="steer-conclusion" role="status">
      {written === undefined ? (
        "No visible concept: no text holds a word like those that this expert promotes."
      ) : (
        <>
          From <b>+{written.strength}</b> on, words like those that it promotes appear:{" "}
          {written.words.map((word) => `“${word}”`).join(", ")}.
        </>
      )}
    </p>
  );
}

type Texts = ReturnType<typeof useTexts>;

function Texts({ run, detail, prompt }: Omit<SteerHereProps, "onPrompt">) {
  const links = usePageLinks();
  const { row } = detail;
  const texts = useTexts(run, row.expert, prompt);
  const [first] = texts;
  const failures = texts.flatMap(([, { generation }]) => generation.failure ?? []);
  return (
    <>
      <div className="steered-texts">
        <SteeredText title="Baseline" note="no edit" variant="baseline" generation={first[1].generation} />
        {texts.map(([edit, { generation }]) => (
          <SteeredText
            key={edit.strength}
            title={`+${edit.strength}`}
            note={`adds ${formatFixed(edit.strength * row.p99, 1)}`}
            variant="steered"
            generation={generation}
            steeringUrl={links.page("steering", { prompt, edits: formatEdits([edit]) })}
          />
        ))}
      </div>
      <Conclusion run={run} detail={detail} texts={texts} />
      {failures[0] !== undefined && <ErrorState error={new ApiError("generation", failures[0], 0)} />}
    </>
  );
}

interface SteerHereProps {
  readonly run: string;
  readonly detail: ExpertDetail;
  /** The prompt of the texts; empty before they are asked for. */
  readonly prompt: string;
  readonly onPrompt: (prompt: string) => void;
}

export function SteerHere({ run, detail, prompt, onPrompt }: SteerHereProps) {
  const [draft, setDraft] = useState(prompt || STEER_PROMPT);
  const steerability = useColumns().find(({ key }) => key === "steerability");
  const submit = () => onPrompt(draft);
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
        <Button variant="primary" icon="steering" disabled={draft.trim() === ""} onClick={submit}>
          Steer
        </Button>
        <span className="dim num">
          {prompt !== "" ? (
            <RampLegend kind="diverging" low={`Δ log p, nats −${SCALE_LIMIT}`} high={`+${SCALE_LIMIT}`} />
          ) : (
            steerability !== undefined && (
              <>
                <ColumnTerm column={steerability}>Steerability</ColumnTerm> {formatValue(steerability, detail.row)} nats
              </>
            )
          )}
        </span>
      </div>
      {prompt !== "" && <Texts run={run} detail={detail} prompt={prompt} />}
    </section>
  );
}
