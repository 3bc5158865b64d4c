/** The tokens on which an edit applies: part of the text, count of tokens, stop text, and tests of other experts. */

import { useState } from "react";

import { Term } from "@/components/terms/term";
import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
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
import { type Edit, withCondition } from "@/lib/edits/edits";

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
  const [draft, setDraft] = useState<string | null>(null);
  const invalid = draft !== null && draft !== "" && !isValid(draft);
  const commit = () => {
    if (draft !== null && !invalid && draft !== value) onCommit(draft);
    setDraft(null);
  };
  return (
    <label className="condition-field">
      {label}
      <span className="field" data-invalid={invalid || undefined}>
        <input
          inputMode={inputMode}
          placeholder={placeholder}
          aria-invalid={invalid}
          value={draft ?? value}
          onChange={(event) => setDraft(event.target.value)}
          onBlur={commit}
          onKeyDown={(event) => {
            if (event.key === "Enter") commit();
            if (event.key === "Escape") setDraft(null);
          }}
        />
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

export function EditCondition({ edit, onChange }: { readonly edit: Edit; readonly onChange: (edit: Edit) => void }) {
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
