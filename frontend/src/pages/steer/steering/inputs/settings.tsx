/** Collapsible settings: sampling, scope of the edits, active experts. */

import { type ReactNode, useState } from "react";

import type { RoutingResponse, RunSummary } from "@/api/types";
import { describeTrainedK, effectiveK, KSlider } from "@/components/runs/k-slider";
import { Button } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { NumberInput } from "@/components/ui/number-input";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { visibleText } from "@/lib/text/token-text";
import {
  describeSampling,
  describeScope,
  MAX_STOP_TEXTS,
  SAMPLING,
  SETTING_NAMES,
  type SettingName,
  type SteeringState,
} from "@/pages/steer/steering/steering-params";

interface PromptTokensProps {
  readonly tokens: RoutingResponse["tokens"] | undefined;
  /** Token indices; 0 is the start token. */
  readonly chosen: readonly number[];
  readonly onChoose: (positions: readonly number[]) => void;
}

/** The prompt's tokens as toggle buttons, to select those to edit. */
function PromptTokens({ tokens, chosen, onChoose }: PromptTokensProps) {
  if (tokens === undefined) return <p className="card-note">Loading tokens…</p>;
  const toggle = (position: number) => {
    const without = chosen.filter((other) => other !== position);
    onChoose(without.length < chosen.length ? without : [...chosen, position].sort((a, b) => a - b));
  };
  const all = tokens.flatMap((token, position) => (token.start ? [] : [position]));
  return (
    <div className="prompt-tokens">
      <div role="group" aria-label="Prompt tokens to edit">
        {tokens.map((token, position) => (
          <button
            key={position}
            type="button"
            className="tk"
            aria-pressed={chosen.includes(position)}
            onClick={() => toggle(position)}
          >
            {token.start ? "start" : visibleText(token.text)}
          </button>
        ))}
      </div>
      <p className="card-note">
        {chosen.length === 0
          ? "Click the tokens to edit. None is selected, so the edits have no effect."
          : `${chosen.length} of ${tokens.length} tokens; generated tokens are not edited.`}
        <Button size="small" variant="ghost" onClick={() => onChoose(chosen.length === all.length ? [] : all)}>
          {chosen.length === all.length ? "None" : "All"}
        </Button>
      </p>
    </div>
  );
}

interface SectionProps {
  readonly title: string;
  readonly summary: string;
  readonly children: ReactNode;
}

function CollapsibleSection({ title, summary, children }: SectionProps) {
  return (
    <details className="collapsible">
      <summary>
        <Icon name="chevronRight" />
        <b>{title}</b>
        <span className="dim">{summary}</span>
      </summary>
      <div className="collapsible-body">{children}</div>
    </details>
  );
}

function NumberField({ name, params, setParams }: SteeringState & { readonly name: SettingName }) {
  const { label, hint, digits, min, max } = SAMPLING[name];
  return (
    <div className="setting">
      <span>
        {label} <small>{hint}</small>
      </span>
      {name === "seed" && (
        <Button
          size="small"
          variant="ghost"
          icon="dice"
          aria-label="Random seed"
          onClick={() => setParams({ seed: Math.floor(Math.random() * 1e6) })}
        />
      )}
      <NumberInput
        label={label}
        value={params[name]}
        digits={digits}
        min={min}
        max={max}
        onCommit={(value) => setParams({ [name]: digits === 0 ? Math.round(value) : value })}
      />
    </div>
  );
}

/** Line breaks are displayed and typed as a backslash and n. */
const escaped = (text: string) => text.replaceAll("\n", String.raw`\n`);
const unescaped = (text: string) => text.replaceAll(String.raw`\n`, "\n");

function StopTexts({ params, setParams }: SteeringState) {
  const [text, setText] = useState("");
  const add = () => {
    const stop = unescaped(text);
    if (stop === "") return;
    setParams((current) => ({ stop: [...new Set([...current.stop, stop])].slice(0, MAX_STOP_TEXTS) }));
    setText("");
  };
  return (
    <div className="setting stop">
      <span>Stop at</span>
      <span className="field">
        <input
          aria-label="Stop text"
          placeholder="text, then Enter; \n for a line break"
          value={text}
          disabled={params.stop.length >= MAX_STOP_TEXTS}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => event.key === "Enter" && add()}
          onBlur={add}
        />
      </span>
      <span className="chips">
        {params.stop.map((stop) => (
          <span key={stop} className="chip mono">
            {escaped(stop)}
            <button
              type="button"
              className="x"
              aria-label={`Remove stop text ${escaped(stop)}`}
              onClick={() => setParams((current) => ({ stop: current.stop.filter((other) => other !== stop) }))}
            >
              ×
            </button>
          </span>
        ))}
      </span>
    </div>
  );
}

export function SamplingSettings(props: SteeringState) {
  return (
    <CollapsibleSection title="Sampling" summary={describeSampling(props.params)}>
      <div className="settings">
        {SETTING_NAMES.map((name) => (
          <NumberField key={name} name={name} {...props} />
        ))}
        <StopTexts {...props} />
      </div>
    </CollapsibleSection>
  );
}

const MODE_HINTS = {
  residual: "Keeps the model’s own MLP and adds only the difference made by the edits.",
  replace: "The run’s layer replaces the MLP in both texts, so both include its reconstruction error.",
} as const;

interface ScopeProps extends SteeringState {
  /** Tokens of the prompt; undefined while loading. */
  readonly tokens: RoutingResponse["tokens"] | undefined;
}

export function ScopeSettings({ params, setParams, tokens }: ScopeProps) {
  return (
    <CollapsibleSection title="Scope of edits" summary={describeScope(params)}>
      <div className="scope">
        <SegmentedControl
          label="Tokens to edit"
          value={params.scope}
          onChange={(scope) => setParams({ scope })}
          segments={[
            { value: "all", label: "All tokens" },
            { value: "generated", label: "Generated" },
            { value: "prompt", label: "Prompt" },
            { value: "chosen", label: "Selected" },
          ]}
        />
        {params.scope === "chosen" && (
          <PromptTokens tokens={tokens} chosen={params.at} onChoose={(at) => setParams({ at })} />
        )}
        <SegmentedControl
          label="Mode"
          value={params.mode}
          onChange={(mode) => setParams({ mode })}
          segments={[
            { value: "residual", label: "Residual (add difference)" },
            { value: "replace", label: "Full replacement" },
          ]}
        />
        <p className="card-note">{MODE_HINTS[params.mode]}</p>
      </div>
    </CollapsibleSection>
  );
}

/** Number of active experts per token, before edits. */
export function GateSettings({ run, params, setParams }: SteeringState & { readonly run: RunSummary }) {
  if (!run.has_top_k || run.k === 1) return null;
  const k = effectiveK(run, params.k) ?? run.k;
  return (
    <CollapsibleSection
      title="Active experts per token"
      summary={`K ${k}${k === run.k ? "" : ` of ${run.k}`}, ${describeTrainedK(run)}`}
    >
      <KSlider run={run} k={params.k} onChange={(next) => setParams({ k: next })} />
    </CollapsibleSection>
  );
}
