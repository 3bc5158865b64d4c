/** One prompt, continued without the expert and with it at three strengths, on one click. */

import { useEffect, useState } from "react";

import { ApiError } from "@/api/http";
import type { ExpertRow, Variant } from "@/api/types";
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

function Texts({ run, row, prompt }: Omit<SteerHereProps, "onPrompt">) {
  const links = usePageLinks();
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
      {failures[0] !== undefined && <ErrorState error={new ApiError("generation", failures[0], 0)} />}
    </>
  );
}

interface SteerHereProps {
  readonly run: string;
  readonly row: ExpertRow;
  /** The prompt of the texts; empty before they are asked for. */
  readonly prompt: string;
  readonly onPrompt: (prompt: string) => void;
}

export function SteerHere({ run, row, prompt, onPrompt }: SteerHereProps) {
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
                <ColumnTerm column={steerability}>Steerability</ColumnTerm> {formatValue(steerability, row)} nats
              </>
            )
          )}
        </span>
      </div>
      {prompt !== "" && <Texts run={run} row={row} prompt={prompt} />}
    </section>
  );
}
