/** How the next token is chosen, and where the edits apply: folded, each with its state in a line. */

import { type ReactNode, useState } from "react";

import { Button } from "@/components/button";
import { Icon } from "@/components/icon";
import { NumberInput } from "@/components/number-input";
import { Segmented } from "@/components/segmented";
import type { RoutingResponse, RunSummary } from "@/api/types";
import { chosenK, fittedKs, KChoice } from "@/components/k-choice";
import { PromptKind } from "@/components/prompt/prompt-kind";
import { FIRST_TURNS } from "@/components/prompt/chat-box";
import type { SetParams } from "@/url-state";

import { PromptTokens } from "./prompt-tokens";

import {
  LIMITS,
  MOST_STOP_TEXTS,
  samplingInWords,
  scopeInWords,
  STEERING_PARAMS,
  type SteeringParams,
} from "./steering-params";

interface SettingsProps {
  readonly params: SteeringParams;
  readonly setParams: SetParams<typeof STEERING_PARAMS>;
}

function Fold({ title, words, children }: { title: string; words: string; children: ReactNode }) {
  return (
    <details className="fold">
      <summary>
        <Icon name="chevronRight" />
        <b>{title}</b>
        <span className="dim">{words}</span>
      </summary>
      <div className="fold-body">{children}</div>
    </details>
  );
}

type Setting = keyof typeof LIMITS;

interface FieldProps {
  readonly name: Setting;
  readonly label: string;
  readonly hint: string;
  /** Decimals; those that are typed beyond stay. */
  readonly digits: number;
}

const FIELDS: readonly FieldProps[] = [
  { name: "tokens", label: "Tokens", hint: "at most", digits: 0 },
  { name: "samples", label: "Samples", hint: "of each arm", digits: 0 },
  { name: "temperature", label: "Temperature", hint: "0 is greedy", digits: 2 },
  { name: "top_p", label: "Top p", hint: "1 is all", digits: 2 },
  { name: "top_k", label: "Top k", hint: "0 is all", digits: 0 },
  { name: "penalty", label: "Repetition", hint: "1 is none", digits: 2 },
  { name: "seed", label: "Seed", hint: "of both arms", digits: 0 },
];

function NumberField({ field, params, setParams }: SettingsProps & { readonly field: FieldProps }) {
  const { name, label, hint, digits } = field;
  return (
    <div className="setting">
      <span>
        {label} <small>{hint}</small>
      </span>
      <NumberInput
        label={label}
        value={params[name]}
        digits={digits}
        min={LIMITS[name].min}
        max={LIMITS[name].max}
        onCommit={(value) => setParams({ [name]: digits === 0 ? Math.round(value) : value })}
      />
      {name === "seed" && (
        <Button
          size="small"
          variant="ghost"
          icon="dice"
          aria-label="Another seed"
          onClick={() => setParams({ seed: Math.floor(Math.random() * 1e6) })}
        />
      )}
    </div>
  );
}

/** Line breaks are typed as `\n`. */
const escaped = (text: string) => text.replaceAll("\n", String.raw`\n`);
const unescaped = (text: string) => text.replaceAll(String.raw`\n`, "\n");

function StopTexts({ params, setParams }: SettingsProps) {
  const [text, setText] = useState("");
  const add = () => {
    const stop = unescaped(text);
    if (stop === "") return;
    setParams({ stop: [...new Set([...params.stop, stop])].slice(0, MOST_STOP_TEXTS) });
    setText("");
  };
  return (
    <div className="setting stop">
      <span>Stop at</span>
      <span className="field">
        <input
          aria-label="Text at which generation stops"
          placeholder="a text, then Enter; \n for a line break"
          value={text}
          disabled={params.stop.length >= MOST_STOP_TEXTS}
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
              aria-label={`Do not stop at ${escaped(stop)}`}
              onClick={() => setParams({ stop: params.stop.filter((other) => other !== stop) })}
            >
              ×
            </button>
          </span>
        ))}
      </span>
    </div>
  );
}

export function SamplingSettings(props: SettingsProps) {
  return (
    <Fold title="Sampling" words={samplingInWords(props.params)}>
      <div className="settings">
        {FIELDS.map((field) => (
          <NumberField key={field.name} field={field} {...props} />
        ))}
        <StopTexts {...props} />
      </div>
    </Fold>
  );
}

const APPLY_HINTS = {
  "on-top": "The language model’s own MLP stays; only the difference that the edits make is added to it.",
  replace: "The run’s layer stands in for the MLP in both texts, so its own error is in both.",
} as const;

interface ScopeProps extends SettingsProps {
  /** Of the prompt; undefined while it is read. */
  readonly tokens: RoutingResponse["tokens"] | undefined;
}

export function ScopeSettings({ params, setParams, tokens }: ScopeProps) {
  return (
    <Fold title="Where edits apply" words={scopeInWords(params)}>
      <div className="scope">
        <Segmented
          label="Tokens that the edits touch"
          value={params.scope}
          onChange={(scope) => setParams({ scope })}
          segments={[
            { value: "all", label: "All tokens" },
            { value: "generated", label: "Generated" },
            { value: "prompt", label: "Prompt" },
            { value: "chosen", label: "Chosen" },
          ]}
        />
        {params.scope === "chosen" && (
          <PromptTokens tokens={tokens} chosen={params.at} onChoose={(at) => setParams({ at })} />
        )}
        <Segmented
          label="How the edits are applied"
          value={params.apply}
          onChange={(apply) => setParams({ apply })}
          segments={[
            { value: "on-top", label: "On top of the MLP" },
            { value: "replace", label: "In place of the MLP" },
          ]}
        />
        <p className="card-note">{APPLY_HINTS[params.apply]}</p>
      </div>
    </Fold>
  );
}

/** How many experts of a token the gate lets through before they are edited. */
export function GateSettings({ run, params, setParams }: SettingsProps & { readonly run: RunSummary }) {
  if (!run.has_top_k || run.k === 1) return null;
  const k = chosenK(run, params.k) ?? run.k;
  return (
    <Fold title="Experts of a token" words={`K ${k}${k === run.k ? "" : ` of ${run.k}`}, ${fittedKs(run)}`}>
      <KChoice run={run} k={params.k} onChange={(next) => setParams({ k: next })} />
    </Fold>
  );
}

/** The prompt as plain text or as a chat. */
export function PromptSettings({ run, params, setParams }: SettingsProps & { readonly run: string }) {
  const isChat = params.turns.length > 0;
  const toChat = () => setParams({ turns: FIRST_TURNS.map((turn) => ({ ...turn, text: params.prompt })), at: [] });
  const toText = () =>
    setParams({ prompt: params.turns.findLast((turn) => turn.role === "user")?.text ?? "", turns: [], at: [] });
  return (
    <Fold title="Prompt" words={isChat ? "a chat, by the tokenizer’s template" : "plain text"}>
      <PromptKind run={run} isChat={isChat} onText={toText} onChat={toChat} />
    </Fold>
  );
}
