/** Baseline and steered text side by side, with legend, error and plain-text view. */

import { type ReactNode, useState } from "react";

import { ApiError } from "@/api/http/errors";
import type { Variant } from "@/api/types";
import { Term } from "@/components/terms/term";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { Button } from "@/components/ui/button";
import { CopyButton } from "@/components/ui/copy-button";
import { ErrorState } from "@/components/ui/states";
import { useShortcut } from "@/hooks/use-shortcut";
import { formatFixed } from "@/lib/text/format";
import { markBoundaries } from "@/lib/text/token-text";
import type { SteeringLock } from "@/pages/steer/steering/steering-params";

import { continuationText, type Generation, meanKl } from "./generation";
import { SCALE_LIMIT, type Hovered, StreamPane } from "./stream-pane";

interface StreamsProps {
  readonly generation: Generation;
  readonly prompt: string;
  /** Tokens that were asked for. */
  readonly maxTokens: number;
  /** Number of edits of the steered text. */
  readonly edits: number;
  readonly lock: SteeringLock | null;
  readonly onLock: (lock: SteeringLock | null) => void;
  readonly onRetry: () => void;
  /** The turns of a chat before each text. */
  readonly history?: (variant: Variant) => ReactNode;
}

function PlainTexts({ generation, prompt }: Pick<StreamsProps, "generation" | "prompt">) {
  return (
    <div className="plain-texts">
      {(["baseline", "steered"] as const).map((variant) => {
        const texts = generation[variant].continuations.map((continuation) => prompt + continuationText(continuation));
        return (
          <section key={variant} aria-label={variant === "steered" ? "Steered" : "Baseline"}>
            <div className="pane-h">
              <h2>{variant === "baseline" ? "Baseline" : "Steered"}</h2>
              <span className="grow" />
              <CopyButton size="small" variant="ghost" text={() => texts.join("\n\n---\n\n")}>
                Copy
              </CopyButton>
            </div>
            {texts.map((text, i) => (
              <p key={i}>{markBoundaries(text)}</p>
            ))}
          </section>
        );
      })}
    </div>
  );
}

export function Streams({ generation, prompt, maxTokens, edits, lock, onLock, onRetry, history }: StreamsProps) {
  const [hovered, setHovered] = useState<Hovered | null>(null);
  const [asText, setAsText] = useState(false);
  useShortcut("release", () => onLock(null), lock !== null);
  const paneProps = { generation, prompt, maxTokens, lock, hovered, onHover: setHovered, onLock };
  const kl = meanKl(generation.steered);
  return (
    <div className={history === undefined ? "streams" : "streams of-chat"}>
      {asText ? (
        <PlainTexts generation={generation} prompt={prompt} />
      ) : (
        <div className="stream-panes">
          <StreamPane variant="baseline" {...paneProps} history={history?.("baseline")} />
          <StreamPane
            variant="steered"
            {...paneProps}
            history={history?.("steered")}
            badge={
              <span className={edits > 0 ? "chip sel" : "chip"}>
                {edits === 0 ? "no edits" : `${edits} ${edits === 1 ? "edit" : "edits"}`}
              </span>
            }
          />
        </div>
      )}
      {generation.failure !== null && (
        <ErrorState error={new ApiError("generation", generation.failure, 0)} onRetry={onRetry} />
      )}
      <div className="stream-foot">
        <RampLegend kind="diverging" low={`Δ log p under steering, nats: −${SCALE_LIMIT}`} high={`+${SCALE_LIMIT}`} />
        <span className="grow" />
        {kl !== null && !generation.isOutdated && (
          <span className="dim">
            <Term id="kl">KL</Term> {formatFixed(kl, 2)} nats per token
          </span>
        )}
        <span className="dim wide">Both texts use the same seed</span>
        <Button size="small" variant="ghost" onClick={() => setAsText(!asText)}>
          {asText ? "Highlighting" : "Plain text"}
        </Button>
      </div>
    </div>
  );
}
