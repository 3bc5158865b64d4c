/** One edit: the expert with two examples, and its mode and strength. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { messageOf } from "@/api/http";
import { expertQuery, topExamplesQuery } from "@/api/queries";
import type { ExpertDetail, ExpertRow } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { ShadedText } from "@/components/tokens/token-text";
import { useTray } from "@/components/tray/tray-context";
import { Button, GhostButton, RemoveChip } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { Slider } from "@/components/ui/slider";
import { useDraft, useDraggedValue } from "@/hooks/use-values";
import { useRoom } from "@/hooks/use-size";
import {
  ALWAYS,
  type Condition,
  describeCondition,
  describeEdit,
  describeGateTest,
  type Edit,
  EDIT_MODES,
  editKey,
  type EditMode,
  hasStrength,
  INITIAL_STRENGTH,
  MAX_COUNTED_TOKENS,
  MAX_GATE_TESTS,
  MAX_STRENGTH,
  parseGateTest,
  strengthDigits,
  type StrengthEdit,
  withCondition,
} from "@/lib/edits/edits";

import { type Activity, describeStrength, editScale, hasNoEffect } from "./edit-notes";
import type { StateProps } from "./index";

interface ConditionProps {
  readonly condition: Condition;
  readonly onChange: (condition: Condition) => void;
}

const LIMITS = [
  { name: "first", label: "Only the first", placeholder: "all" },
  { name: "ramp", label: "Grow over", placeholder: "0" },
  { name: "fade", label: "Fade over", placeholder: "never" },
  { name: "until", label: "Until text", placeholder: "end" },
] as const;
const MAX_TEXT = 200;
const isCount = (text: string) => /^\d+$/.test(text) && Number(text) > 0 && Number(text) <= MAX_COUNTED_TOKENS;

/** A limit in generated tokens, or the text that ends an edit. Commits on Enter and blur; empty means no limit. */
function LimitField({ condition, onChange, limit }: ConditionProps & { readonly limit: (typeof LIMITS)[number] }) {
  const { name, label, placeholder } = limit;
  const value = String(condition[name] ?? "");
  const { invalid, input } = useDraft(
    value,
    (text) => text === "" || (name === "until" ? text.length <= MAX_TEXT : isCount(text)),
    (text) => {
      const limited = text === "" ? null : name === "until" ? text : Number(text);
      if (text !== value) onChange({ ...condition, [name]: limited });
    },
  );
  return (
    <label className="condition-field">
      {label}
      <span className="field" data-invalid={invalid || undefined}>
        <input inputMode={name === "until" ? "text" : "numeric"} placeholder={placeholder} {...input} />
      </span>
    </label>
  );
}

const LEVELS = {
  ">0": "is active",
  ">median": "is above its median",
  "<=median": "is at most its median",
  "<=0": "is inactive",
};

function NewGateTest({ condition, onChange }: ConditionProps) {
  const [level, setLevel] = useState(">median");
  const [expert, setExpert] = useState("");
  const test = parseGateTest(`${expert}${level}`);
  const add = () => {
    if (test === null) return;
    onChange({ ...condition, gates: [...condition.gates, test] });
    setExpert("");
  };
  return (
    <div className="row condition-test">
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
        {Object.entries(LEVELS).map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
      <Button size="small" disabled={test === null} onClick={add}>
        Add
      </Button>
    </div>
  );
}

/** The tokens on which an edit applies: part of the text, count of tokens, stop text, and tests of other experts. */
function EditCondition({ edit, onChange }: { readonly edit: Edit; readonly onChange: (edit: Edit) => void }) {
  const condition = edit.when ?? ALWAYS;
  const { gates } = condition;
  const change = (next: Condition) => onChange(withCondition(edit, next));
  return (
    <details className="edit-condition">
      <summary className="row">
        Condition: <b>{describeCondition(condition)}</b>
      </summary>
      <div className="stack condition-form">
        <SegmentedControl
          label={`Part of the text in which expert ${edit.expert} is edited`}
          value={condition.scope}
          // Limits on generated tokens mean nothing on the prompt.
          onChange={(scope) => change(scope === "prompt" ? { ...ALWAYS, gates, scope } : { ...condition, scope })}
          segments={segmentsOf({ all: "everywhere", generated: "in the answer", prompt: "in the prompt" })}
        />
        {condition.scope !== "prompt" && (
          <div className="condition-fields">
            {LIMITS.map((limit) => (
              <LimitField key={limit.name} limit={limit} condition={condition} onChange={change} />
            ))}
          </div>
        )}
        {gates.map((test, index) => (
          <span key={index} className="chip">
            when {describeGateTest(test)}
            <RemoveChip
              label={`Remove the test that ${describeGateTest(test)}`}
              onRemove={() => change({ ...condition, gates: gates.toSpliced(index, 1) })}
            />
          </span>
        ))}
        {gates.length < MAX_GATE_TESTS && <NewGateTest condition={condition} onChange={change} />}
        <p className="card-note">
          <Term id="condition">All parts must hold</Term> on a token; counts are generated tokens.
        </p>
      </div>
    </details>
  );
}

const sliderOf = (edit: StrengthEdit) => ({ label: `Strength of expert ${edit.expert}`, ...editScale(edit) });

interface ExpertProps {
  /** The expert's run. */
  readonly run: string;
  readonly edit: Edit;
  /** False if the run has no examples and statistics yet. */
  readonly isIndexed: boolean;
}

/** The expert's name; dots until it is known. */
function Name({ run, edit: { expert }, isIndexed }: ExpertProps) {
  const { data, isLoading } = useQuery({ ...expertQuery(run, expert), enabled: isIndexed });
  if (isLoading)
    return (
      <>
        …<span className="sr">Expert {expert}</span>
      </>
    );
  const { label = null, automatic, top_tokens: topTokens = [] } = data?.row ?? {};
  return <ExpertLabel {...{ label, automatic, topTokens, expert }} />;
}

function NarrowStrength({ run, edit }: { readonly run: string; readonly edit: StrengthEdit }) {
  const tray = useTray();
  const { shown, drag, commit } = useDraggedValue(edit.strength, (strength) => tray.put({ ...edit, strength }));
  return (
    <div className="chat-strength">
      <span>
        <span className="mono dim">{editKey(edit)}</span> <Name run={edit.run ?? run} edit={edit} isIndexed />
      </span>
      <Slider {...sliderOf(edit)} value={shown} onChange={drag} onChangeEnd={commit} />
      <output>
        <b>{describeEdit({ mode: edit.mode, strength: shown })}</b>
      </output>
    </div>
  );
}

/** From this width the tray is beside the texts, as in the style sheet. */
const BESIDE = [901];

/** The sliders above the texts of a narrow screen, where the tray is below them. */
export function NarrowStrengths({ state: { run, edits } }: StateProps) {
  if (useRoom(BESIDE) > 0 || edits.length === 0) return null;
  return (
    <div className="chat-strengths">
      {edits.filter(hasStrength).map((edit) => (
        <NarrowStrength key={editKey(edit)} run={run.name} edit={edit} />
      ))}
    </div>
  );
}

const NUM_SNIPPETS = 2;

interface EditCardProps extends ExpertProps {
  readonly activity: Activity | null;
  readonly onChange: (edit: Edit) => void;
  readonly onRemove: () => void;
}

/** Two examples of the expert; their room while they load. */
function Snippets({ run, edit, isIndexed, row }: ExpertProps & { readonly row: ExpertRow | null }) {
  const { data } = useQuery({ ...topExamplesQuery(run, edit.expert, NUM_SNIPPETS), enabled: isIndexed });
  if (!isIndexed || row?.active_tokens === 0) return null;
  const examples = data?.examples ?? [];
  return (
    <div className="snippets">
      {Array.from({ length: data === undefined ? NUM_SNIPPETS : examples.length }, (_, i) => (
        <p key={i}>
          {examples[i] !== undefined && row !== null && (
            <ShadedText example={examples[i]} before={4} after={8} largest={row.max_activation} />
          )}
        </p>
      ))}
    </div>
  );
}

interface NoteProps extends EditCardProps {
  readonly detail: ExpertDetail | null;
}

/** Explains the strength, or why the edit has no effect here. */
function Note({ edit, detail, activity, isIndexed, onChange }: NoteProps) {
  const { mode, strength } = edit;
  if (hasNoEffect(edit, activity))
    return (
      <p className="card-note">
        Not active in this prompt or text{mode === "scale" ? ", so scaling has no effect. " : "."}
        {mode === "scale" && (
          <button
            type="button"
            className="link"
            onClick={() => onChange({ ...edit, mode: "add", strength: INITIAL_STRENGTH.add })}
          >
            Add to it instead
          </button>
        )}
      </p>
    );
  const { text, isWarning } = describeStrength(mode, strength, detail);
  const description =
    mode === "ablate"
      ? "Ablated: its activation is 0 wherever the edit applies."
      : Math.abs(strength) === MAX_STRENGTH
        ? "Strengths are limited to −1,000 to 1,000."
        : text;
  // Its line while the expert is loading.
  if (description === "")
    return isIndexed && detail === null && mode !== "scale" ? <p className="card-note">&nbsp;</p> : null;
  return <p className={isWarning ? "card-note warn" : "card-note"}>{description}</p>;
}

function CardHead({ run, edit, isIndexed, onRemove }: EditCardProps) {
  const remove = `Remove expert ${edit.expert} from the tray`;
  return (
    <header className="row">
      <span className="mono id">{edit.expert}</span>
      <Link className="lab" to={pageLinks(run).expert(edit.expert)}>
        <Name {...{ run, edit, isIndexed }} />
      </Link>
      <span className="grow" />
      {edit.run !== undefined && <span className="chip">{edit.run}</span>}
      <GhostButton className="bare" icon="close" aria-label={remove} onClick={onRemove} />
    </header>
  );
}

export function EditCard(props: EditCardProps) {
  const { run, edit, isIndexed, onChange } = props;
  const { expert, mode } = edit;
  const { data, error } = useQuery({ ...expertQuery(run, expert), enabled: isIndexed });
  const dragged = useDraggedValue(edit.strength, (strength) => {
    if (strength !== edit.strength) onChange({ ...edit, strength });
  });
  const value = dragged.shown;
  const [remembered, setRemembered] = useState<Partial<Record<EditMode, number>>>({});
  const row = data?.row ?? null;
  const setStrength = (strength: number) => dragged.commit(Number(strength.toFixed(3)));
  const setMode = (next: EditMode) => {
    setRemembered({ ...remembered, [mode]: edit.strength });
    onChange({ ...edit, mode: next, strength: remembered[next] ?? INITIAL_STRENGTH[next] });
  };
  return (
    <li className="edit-card">
      <CardHead {...props} />
      {error !== null && <p className="card-note bad">{messageOf(error)}</p>}
      <Snippets run={run} edit={edit} isIndexed={isIndexed && error === null} row={row} />
      <div className="row edit-controls">
        <SegmentedControl
          label={`Mode of the edit of expert ${expert}`}
          value={mode}
          onChange={setMode}
          segments={EDIT_MODES.map((name) => ({ value: name, label: name }))}
        />
        <span className="grow" />
        {hasStrength(edit) ? (
          <NumberInput
            label={`Strength of expert ${expert}`}
            value={value}
            digits={strengthDigits(Number(value.toFixed(3)))}
            min={-MAX_STRENGTH}
            max={MAX_STRENGTH}
            prefix={editScale(edit).sign}
            onCommit={setStrength}
          />
        ) : (
          <span className="field number" data-disabled="true">
            0
          </span>
        )}
      </div>
      {hasStrength(edit) && (
        <Slider {...sliderOf(edit)} value={value} onChange={dragged.drag} onChangeEnd={setStrength} />
      )}
      <Note {...props} edit={{ ...edit, strength: value }} detail={data ?? null} />
      <EditCondition edit={edit} onChange={onChange} />
    </li>
  );
}
