/** Both texts side by side, with what belongs to both: scale, failure, the texts without colour. */

import { useState } from "react";

import { ApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { CopyButton } from "@/components/copy-button";
import { useShortcut } from "@/components/shortcuts";
import { ErrorState } from "@/components/states";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { formatFixed } from "@/lib/format";

import { type Generation, meanKl, textOf } from "./generation";
import type { SteeringLock } from "./steering-params";
import { DELTA_LIMIT, type Hovered, StreamPane } from "./stream-pane";

interface StreamsProps {
  readonly generation: Generation;
  readonly prompt: string;
  /** How many edits the steered text has. */
  readonly edits: number;
  readonly lock: SteeringLock | null;
  readonly onLock: (lock: SteeringLock | null) => void;
  readonly onRetry: () => void;
}

function PlainTexts({ generation, prompt }: Pick<StreamsProps, "generation" | "prompt">) {
  return (
    <div className="plain-texts">
      {(["default", "steered"] as const).map((arm) => {
        const texts = generation[arm].continuations.map((continuation) => prompt + textOf(continuation));
        return (
          <section key={arm} aria-label={arm}>
            <div className="pane-h">
              <h2>{arm === "default" ? "Default" : "Steered"}</h2>
              <span className="grow" />
              <CopyButton size="small" variant="ghost" text={() => texts.join("\n\n---\n\n")}>
                Copy
              </CopyButton>
            </div>
            {texts.map((text, i) => (
              <p key={i}>{text}</p>
            ))}
          </section>
        );
      })}
    </div>
  );
}

export function Streams({ generation, prompt, edits, lock, onLock, onRetry }: StreamsProps) {
  const [hovered, setHovered] = useState<Hovered | null>(null);
  const [asText, setAsText] = useState(false);
  useShortcut("release", () => onLock(null), lock !== null);
  const pane = { generation, prompt, lock, hovered, onHover: setHovered, onLock };
  const kl = meanKl(generation.steered);
  return (
    <div className="streams">
      {asText ? (
        <PlainTexts generation={generation} prompt={prompt} />
      ) : (
        <div className="stream-panes">
          <StreamPane arm="default" {...pane} />
          <StreamPane
            arm="steered"
            {...pane}
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
        <RampLegend kind="diverging" low={`Δ log p under steering, nats: −${DELTA_LIMIT}`} high={`+${DELTA_LIMIT}`} />
        <span className="grow" />
        {kl !== null && !generation.isOutdated && (
          <span className="dim" title="Mean over the steered text, between what the two arms expect next">
            KL {formatFixed(kl, 2)} nats a token.
          </span>
        )}
        <span className="dim wide">Same seed on both sides.</span>
        <Button size="small" variant="ghost" aria-pressed={asText} onClick={() => setAsText(!asText)}>
          {asText ? "Show the shades" : "Show as text"}
        </Button>
      </div>
    </div>
  );
}
