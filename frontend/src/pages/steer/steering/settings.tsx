/** Below the texts: sampling, scope of the edits and active experts, and the same generation as code. */

import { type ReactNode, useState } from "react";

import type { RoutingResponse } from "@/api/types";
import { describeTrainedK, KSlider } from "@/components/runs/k-slider";
import { GhostButton, RemoveChip } from "@/components/ui/button";
import { Code, useCommandFlags } from "@/components/ui/copy-button";
import { NumberInput } from "@/components/ui/number-input";
import { PaneHead } from "@/components/ui/pane-head";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { visibleText } from "@/lib/text/token-text";

import { steerCommand, steerPython } from "./code-snippets";
import type { StateProps } from "./index";
import {
  describeSampling,
  describeScope,
  MAX_STOP_TEXTS,
  SAMPLING,
  SETTING_NAMES,
  type SettingName,
  type SteeringState,
} from "./steering-params";

interface TokensProps extends SteeringState {
  /** Tokens of the prompt; undefined while loading. */
  readonly tokens: RoutingResponse["tokens"] | undefined;
}

/** The prompt's tokens as toggle buttons, to select those to edit. */
function PromptTokens({ tokens, params: { at: chosen }, setParams }: TokensProps) {
  const choose = (at: readonly number[]) => setParams({ at });
  if (tokens === undefined) return <p className="card-note">Loading tokens…</p>;
  const toggle = (position: number) => {
    const without = chosen.filter((other) => other !== position);
    choose(without.length < chosen.length ? without : [...chosen, position].sort((a, b) => a - b));
  };
  const all = tokens.flatMap((token, position) => (token.start ? [] : [position]));
  return (
    <div className="prompt-tokens">
      <div className="row wrap" role="group" aria-label="Prompt tokens to edit">
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
        <GhostButton onClick={() => choose(chosen.length === all.length ? [] : all)}>
          {chosen.length === all.length ? "None" : "All"}
        </GhostButton>
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
      <summary className="row">
        <b>{title}</b>
        <span className="dim cut">{summary}</span>
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
        <GhostButton
          icon="dice"
          aria-label="Random seed"
          onClick={() => setParams({ seed: Math.floor(Math.random() * 1e6) })}
        />
      )}
      <NumberInput
        {...{ label, digits, min, max }}
        value={params[name]}
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
            <RemoveChip
              label={`Remove stop text ${escaped(stop)}`}
              onRemove={() => setParams((current) => ({ stop: current.stop.filter((other) => other !== stop) }))}
            />
          </span>
        ))}
      </span>
    </div>
  );
}

const MODE_HINTS = {
  residual: "Keeps the model’s own MLP and adds only the difference made by the edits.",
  replace: "The run’s layer replaces the MLP in both texts, so both include its reconstruction error.",
} as const;

function Scope(props: TokensProps) {
  const { params, setParams } = props;
  return (
    <CollapsibleSection title="Scope of edits" summary={describeScope(params)}>
      <div className="row wrap">
        <SegmentedControl
          label="Tokens to edit"
          value={params.scope}
          onChange={(scope) => setParams({ scope })}
          segments={segmentsOf({ all: "All tokens", generated: "Generated", prompt: "Prompt", chosen: "Selected" })}
        />
        {params.scope === "chosen" && <PromptTokens {...props} />}
        <SegmentedControl
          label="Mode"
          value={params.mode}
          onChange={(mode) => setParams({ mode })}
          segments={segmentsOf({ residual: "Residual (add difference)", replace: "Full replacement" })}
        />
        <p className="card-note">{MODE_HINTS[params.mode]}</p>
      </div>
    </CollapsibleSection>
  );
}

/** Characters of a prompt that the code shows. */
const SHOWN_PROMPT = 240;

interface CodeProps extends StateProps {
  /** The prompt as a single text, even if it is a chat. */
  readonly text: string;
}

/** The same generation as a shell command and as Python code. */
function CodeExport({ state: { run, request, params, setParams }, text }: CodeProps) {
  const { code } = params;
  const flags = useCommandFlags();
  const of = (prompt: string) => {
    const shown = { ...request, prompt };
    return code === "command" ? steerCommand(run.name, shown, flags) : steerPython(run.name, shown);
  };
  const isLong = text.length > SHOWN_PROMPT;
  return (
    <section className="code-export" aria-label="Use this in code">
      <PaneHead title="Use this in code" note={isLong ? "prompt shortened here, complete when copied" : undefined}>
        <SegmentedControl
          label="Language"
          value={code}
          onChange={(next) => setParams({ code: next })}
          segments={segmentsOf({ command: "Command", python: "Python" })}
        />
      </PaneHead>
      <Code text={of(text)} {...(isLong && { shown: of(`${text.slice(0, SHOWN_PROMPT)} …`) })} />
    </section>
  );
}

export function Settings({ state, text, tokens }: CodeProps & Pick<TokensProps, "tokens">) {
  const { run, params, setParams } = state;
  const props = { params, setParams };
  const k = params.k ?? run.k;
  return (
    <div className="steering-settings">
      <CollapsibleSection title="Sampling" summary={describeSampling(params)}>
        <div className="setting-grid">
          {SETTING_NAMES.map((name) => (
            <NumberField key={name} name={name} {...props} />
          ))}
          <StopTexts {...props} />
        </div>
      </CollapsibleSection>
      <Scope {...props} tokens={tokens} />
      {run.has_top_k && run.k > 1 && (
        <CollapsibleSection
          title="Active experts per token"
          summary={`K ${k}${k === run.k ? "" : ` of ${run.k}`}, ${describeTrainedK(run)}`}
        >
          <KSlider run={run} k={params.k} onChange={(next) => setParams({ k: next })} />
        </CollapsibleSection>
      )}
      {text !== "" && <CodeExport state={state} text={text} />}
    </div>
  );
}
