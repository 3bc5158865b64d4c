/** One edit: the expert with two examples, and its mode and strength. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { messageOf } from "@/api/http/errors";
import { expertQuery, topExamplesQuery } from "@/api/queries";
import type { ExpertRow } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { ShadedText } from "@/components/tokens/shaded-text";
import { Button } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { NumberInput } from "@/components/ui/number-input";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { Slider } from "@/components/ui/slider";
import { useDraft } from "@/hooks/use-draft";
import { useDraggedValue } from "@/hooks/use-dragged-value";
import {
  ALWAYS,
  type Condition,
  describeCondition,
  describeGateTest,
  type GateTest,
  MAX_COUNTED_TOKENS,
  MAX_GATE_TESTS,
  parseGateTest,
} from "@/lib/edits/conditions";
import {
  type Edit,
  EDIT_MODES,
  type EditMode,
  hasStrength,
  INITIAL_STRENGTH,
  MAX_STRENGTH,
  strengthDigits,
  type StrengthEdit,
  withCondition,
} from "@/lib/edits/edits";

import { type Activity, hasNoEffect } from "./activity";
import { describeStrength, editScale, isExcessive } from "./edit-scale";

interface ConditionProps {
  readonly condition: Condition;
  readonly onChange: (condition: Condition) => void;
}

interface TextFieldProps {
  readonly label: string;
  readonly value: string;
  readonly placeholder: string;
  readonly inputMode: "numeric" | "text";
  readonly isValid: (text: string) => boolean;
  readonly onCommit: (text: string) => void;
}

/** Commits on Enter and blur; an empty field means no limit. */
function TextField({ label, value, placeholder, inputMode, isValid, onCommit }: TextFieldProps) {
  const { invalid, input } = useDraft(
    value,
    (text) => text === "" || isValid(text),
    (text) => text !== value && onCommit(text),
  );
  return (
    <label className="condition-field">
      {label}
      <span className="field" data-invalid={invalid || undefined}>
        <input inputMode={inputMode} placeholder={placeholder} {...input} />
      </span>
    </label>
  );
}

const isCount = (text: string) => /^\d+$/.test(text) && Number(text) > 0 && Number(text) <= MAX_COUNTED_TOKENS;

const COUNTS = [
  { name: "first", label: "Only the first", placeholder: "all" },
  { name: "ramp", label: "Grow over", placeholder: "0" },
  { name: "fade", label: "Fade over", placeholder: "never" },
] as const;

/** Limits that count generated tokens. */
function GeneratedLimits({ condition, onChange }: ConditionProps) {
  return (
    <div className="condition-fields">
      {COUNTS.map(({ name, label, placeholder }) => (
        <TextField
          key={name}
          label={label}
          placeholder={placeholder}
          inputMode="numeric"
          value={condition[name] === null ? "" : String(condition[name])}
          isValid={isCount}
          onCommit={(text) => onChange({ ...condition, [name]: text === "" ? null : Number(text) })}
        />
      ))}
      <TextField
        label="Until text"
        placeholder="end"
        inputMode="text"
        value={condition.until ?? ""}
        isValid={(text) => text.length <= 200}
        onCommit={(text) => onChange({ ...condition, until: text === "" ? null : text })}
      />
    </div>
  );
}

const LEVELS = [
  { value: ">0", label: "is active" },
  { value: ">median", label: "is above its median" },
  { value: "<=median", label: "is at most its median" },
  { value: "<=0", label: "is inactive" },
] as const;

function NewGateTest({ onAdd }: { readonly onAdd: (test: GateTest) => void }) {
  const [level, setLevel] = useState<string>(">median");
  const [expert, setExpert] = useState("");
  const test = parseGateTest(`${expert}${level}`);
  const add = () => {
    if (test === null) return;
    onAdd(test);
    setExpert("");
  };
  return (
    <div className="condition-test">
      When expert
      <span className="field">
        <input
          aria-label="Expert to test"
          placeholder="id"
          inputMode="numeric"
          value={expert}
          onChange={(event) => setExpert(event.target.value)}
          onKeyDown={(event) => event.key === "Enter" && add()}
        />
      </span>
      <select aria-label="Level of the test" value={level} onChange={(event) => setLevel(event.target.value)}>
        {LEVELS.map(({ value, label }) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
      <button type="button" className="btn small" disabled={test === null} onClick={add}>
        Add
      </button>
    </div>
  );
}

function GateTests({ condition, onChange }: ConditionProps) {
  const { gates } = condition;
  return (
    <>
      {gates.map((test, index) => (
        <span key={index} className="chip">
          when {describeGateTest(test)}
          <button
            type="button"
            className="x"
            aria-label={`Remove the test that ${describeGateTest(test)}`}
            onClick={() => onChange({ ...condition, gates: gates.toSpliced(index, 1) })}
          >
            ×
          </button>
        </span>
      ))}
      {gates.length < MAX_GATE_TESTS && (
        <NewGateTest onAdd={(test) => onChange({ ...condition, gates: [...gates, test] })} />
      )}
    </>
  );
}

/** The tokens on which an edit applies: part of the text, count of tokens, stop text, and tests of other experts. */
function EditCondition({ edit, onChange }: { readonly edit: Edit; readonly onChange: (edit: Edit) => void }) {
  const condition = edit.when ?? ALWAYS;
  const change = (next: Condition) => onChange(withCondition(edit, next));
  return (
    <details className="edit-condition">
      <summary>
        <Icon name="chevronRight" />
        Condition: <b>{describeCondition(condition)}</b>
      </summary>
      <div className="condition-form">
        <SegmentedControl
          label={`Part of the text in which expert ${edit.expert} is edited`}
          value={condition.scope}
          // Limits on generated tokens mean nothing on the prompt.
          onChange={(scope) =>
            change(scope === "prompt" ? { ...ALWAYS, gates: condition.gates, scope } : { ...condition, scope })
          }
          segments={[
            { value: "all", label: "everywhere" },
            { value: "generated", label: "in the answer" },
            { value: "prompt", label: "in the prompt" },
          ]}
        />
        {condition.scope !== "prompt" && <GeneratedLimits condition={condition} onChange={change} />}
        <GateTests condition={condition} onChange={change} />
        <p className="card-note">
          <Term id="condition">All parts must hold</Term> on a token; counts are generated tokens.
        </p>
      </div>
    </details>
  );
}

const NUM_SNIPPETS = 2;

interface EditCardProps {
  /** The expert's run. */
  readonly run: string;
  readonly edit: Edit;
  /** False if the run has no examples and statistics yet. */
  readonly isIndexed: boolean;
  readonly activity: Activity | null;
  readonly onChange: (edit: Edit) => void;
  readonly onRemove: () => void;
}

/** Room for the examples while they load. */
function NoSnippets() {
  return (
    <div className="snippets">
      {Array.from({ length: NUM_SNIPPETS }, (_, i) => (
        <p key={i} />
      ))}
    </div>
  );
}

function Snippets({ run, row }: { readonly run: string; readonly row: ExpertRow }) {
  const { data } = useQuery(topExamplesQuery(run, row.expert, NUM_SNIPPETS));
  if (data === undefined) return <NoSnippets />;
  return (
    <div className="snippets">
      {data.examples.map((example) => (
        <p key={example.rank}>
          <span>
            <ShadedText example={example} before={4} after={8} largest={row.max_activation} />
          </span>
        </p>
      ))}
    </div>
  );
}

function Head({
  run,
  edit,
  row,
  onRemove,
}: Pick<EditCardProps, "run" | "edit" | "onRemove"> & { row: ExpertRow | undefined }) {
  const links = pageLinks(run);
  const tokens = row?.top_tokens.map((token) => token.text) ?? [];
  return (
    <header>
      <span className="mono id">{edit.expert}</span>
      <Link className="lab" to={links.expert(edit.expert)}>
        <ExpertLabel label={row?.label ?? null} automatic={row?.automatic} topTokens={tokens} expert={edit.expert} />
      </Link>
      <span className="grow" />
      {edit.run !== undefined && <span className="chip">{edit.run}</span>}
      <Button
        size="small"
        variant="ghost"
        className="bare"
        icon="close"
        aria-label={`Remove expert ${edit.expert} from the tray`}
        onClick={onRemove}
      />
    </header>
  );
}

interface StrengthProps {
  readonly edit: StrengthEdit;
  readonly value: number;
  readonly onDrag: (strength: number) => void;
  readonly onChange: (strength: number) => void;
}

export function StrengthSlider({ edit, value, onDrag, onChange }: StrengthProps) {
  const scale = editScale(edit.mode);
  return (
    <Slider
      label={`Strength of expert ${edit.expert}`}
      value={value}
      min={scale.min}
      max={scale.max}
      step={scale.step}
      neutral={scale.neutral}
      ticks={scale.ticks}
      onChange={onDrag}
      onChangeEnd={onChange}
    />
  );
}

interface NoteProps {
  readonly edit: Edit;
  readonly row: ExpertRow | null;
  readonly activity: Activity | null;
  readonly onChange: (edit: Edit) => void;
}

/** Explains the strength, or why the edit has no effect here. */
function Note({ edit, row, activity, onChange }: NoteProps) {
  if (edit.mode === "scale" && hasNoEffect(edit, activity)) {
    const add = { ...edit, mode: "add", strength: INITIAL_STRENGTH.add } as const;
    return (
      <p className="card-note">
        Not active in this prompt or text, so scaling has no effect.{" "}
        <button type="button" className="link" onClick={() => onChange(add)}>
          Add to it instead
        </button>
      </p>
    );
  }
  if (hasNoEffect(edit, activity)) return <p className="card-note">Not active in this prompt or text.</p>;
  if (edit.mode === "ablate")
    return <p className="card-note">Ablated: its activation is 0 wherever the edit applies.</p>;
  if (Math.abs(edit.strength) === MAX_STRENGTH) {
    return <p className="card-note">Strengths are limited to −1,000 to 1,000.</p>;
  }
  const description = describeStrength(edit.mode, edit.strength, row);
  if (description === "") return null;
  return <p className={isExcessive(edit.mode, edit.strength, row) ? "card-note warn" : "card-note"}>{description}</p>;
}

export function EditCard({ run, edit, isIndexed, activity, onChange, onRemove }: EditCardProps) {
  const { data, error } = useQuery({ ...expertQuery(run, edit.expert), enabled: isIndexed });
  const {
    shown: value,
    drag,
    commit,
  } = useDraggedValue(edit.strength, (strength) => {
    if (strength !== edit.strength) onChange({ ...edit, strength });
  });
  const [remembered, setRemembered] = useState<Partial<Record<EditMode, number>>>({});
  const { mode } = edit;
  const isLoading = isIndexed && data === undefined && error === null;
  const row = data?.row ?? null;
  const setStrength = (strength: number) => commit(Number(strength.toFixed(3)));
  const setMode = (next: EditMode) => {
    setRemembered({ ...remembered, [mode]: edit.strength });
    onChange({ ...edit, mode: next, strength: remembered[next] ?? INITIAL_STRENGTH[next] });
  };
  return (
    <li className="edit-card">
      <Head run={run} edit={edit} row={data?.row} onRemove={onRemove} />
      {error !== null && <p className="card-note bad">{messageOf(error)}</p>}
      {row !== null && row.active_tokens > 0 && <Snippets run={run} row={row} />}
      {isLoading && <NoSnippets />}
      <div className="edit-controls">
        <SegmentedControl
          label={`Mode of the edit of expert ${edit.expert}`}
          value={mode}
          onChange={setMode}
          segments={EDIT_MODES.map((name) => ({ value: name, label: name }))}
        />
        <span className="grow" />
        {hasStrength(edit) ? (
          <NumberInput
            label={`Strength of expert ${edit.expert}`}
            value={value}
            digits={strengthDigits(Number(value.toFixed(3)))}
            min={-MAX_STRENGTH}
            max={MAX_STRENGTH}
            prefix={editScale(edit.mode).sign}
            onCommit={setStrength}
          />
        ) : (
          <span className="field number" data-disabled="true">
            0
          </span>
        )}
      </div>
      {hasStrength(edit) && <StrengthSlider edit={edit} value={value} onDrag={drag} onChange={setStrength} />}
      {isLoading && mode !== "scale" && <p className="card-note">&nbsp;</p>}
      <Note edit={{ ...edit, strength: value }} row={row} activity={activity} onChange={onChange} />
      <EditCondition edit={edit} onChange={onChange} />
    </li>
  );
}
