/** The expert turned up: one slider, and the same prompt gone on with and without it. */

import { useEffect, useMemo, useState } from "react";

import type { ExpertRow, SteeringRequest } from "@/api/types";
import { Button, LinkButton } from "@/components/button";
import { usePageLinks } from "@/components/links";
import { NumberInput } from "@/components/number-input";
import { Slider } from "@/components/slider";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { formatEdits } from "@/lib/edits";
import { formatFixed } from "@/lib/format";
import { visibleText } from "@/lib/token-text";

import { GeneratedText } from "./generated-text";
import { MAX_SCALE } from "./home-params";
import { PromptEditor } from "./prompt-editor";
import { useGeneration } from "./use-generation";

const MAX_TOKENS = 48;

interface TurnUpProps {
  readonly run: string;
  readonly row: ExpertRow;
  readonly prompt: string;
  readonly scale: number;
  readonly onPrompt: (text: string | null) => void;
  readonly onScale: (scale: number) => void;
}

function requestFor(prompt: string, expert: number, strength: number): SteeringRequest {
  return {
    prompt,
    edits: [{ expert, mode: "scale", strength }],
    apply: "on-top",
    scope: "all",
    sampling: { max_tokens: MAX_TOKENS },
  };
}

function ScaleControl({ row, scale, onScale }: Pick<TurnUpProps, "row" | "scale" | "onScale">) {
  const [dragged, setDragged] = useState<number | null>(null);
  const shown = dragged ?? scale;
  const commit = (value: number) => {
    setDragged(null);
    onScale(value);
  };
  const label = `Scale of expert ${row.expert}`;
  return (
    <>
      <div className="scale">
        <span className="ink2">Scale its coefficient</span>
        <NumberInput label={label} sign="×" value={shown} digits={1} min={0} max={MAX_SCALE} onCommit={commit} />
      </div>
      <Slider
        label={label}
        value={shown}
        min={0}
        max={MAX_SCALE}
        step={0.1}
        neutral={1}
        ticks={[
          { at: 0, label: "off" },
          { at: 1, label: "×1" },
          { at: 4, label: "×4" },
          { at: MAX_SCALE, label: `×${MAX_SCALE}` },
        ]}
        onChange={setDragged}
        onChangeEnd={commit}
      />
      <p className="hint">
        Drag, or <kbd>←</kbd> <kbd>→</kbd>. Both texts use the same seed.
      </p>
    </>
  );
}

function PromptLine({ prompt, onEdit }: { readonly prompt: string; readonly onEdit: () => void }) {
  return (
    <div className="pane-h">
      <h2>Prompt</h2>
      <span className="text prompt-line">{visibleText(prompt).replaceAll("␣", " ")}</span>
      <Button size="small" variant="ghost" icon="edit" aria-label="Edit what both texts go on from" onClick={onEdit} />
      <span className="grow" />
      <RampLegend kind="diverging" low="less" high="more likely than by default" />
    </div>
  );
}

function Texts({ run, row, prompt, scale, onPrompt }: Omit<TurnUpProps, "onScale">) {
  const [editing, setEditing] = useState(false);
  const { generation, start } = useGeneration(run);
  const request = useMemo(() => requestFor(prompt, row.expert, scale), [prompt, row.expert, scale]);
  useEffect(() => {
    if (prompt !== "") start(request);
  }, [prompt, request, start]);
  if (editing) {
    const done = (text: string | null) => {
      setEditing(false);
      if (text !== prompt) onPrompt(text);
    };
    return <PromptEditor label="Prompt to go on from" action="Generate" initial={prompt} onDone={done} />;
  }
  return (
    <>
      <PromptLine prompt={prompt} onEdit={() => setEditing(true)} />
      <div className="cols">
        <div>
          <h3>Default</h3>
          <GeneratedText arm="default" generation={generation} />
        </div>
        <div>
          <h3>
            Steered{" "}
            <span>
              {row.expert} × {formatFixed(scale, 1)}
            </span>
          </h3>
          <GeneratedText arm="steered" generation={generation} onRetry={() => start(request)} />
        </div>
      </div>
    </>
  );
}

export function TurnUp({ onScale, ...props }: TurnUpProps) {
  const links = usePageLinks();
  const edits = formatEdits([{ expert: props.row.expert, mode: "scale", strength: props.scale }]);
  return (
    <section className="band last">
      <div className="side">
        <h2 className="big">Turn it up</h2>
        <ScaleControl row={props.row} scale={props.scale} onScale={onScale} />
        <div className="acts">
          <LinkButton size="small" to={links.page("steering", { prompt: props.prompt, edits })}>
            All controls
          </LinkButton>
        </div>
      </div>
      <div className="pane">
        <Texts {...props} />
      </div>
    </section>
  );
}
