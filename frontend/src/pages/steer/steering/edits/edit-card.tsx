/** One edit: the expert with two examples, and its mode and strength. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { messageOf } from "@/api/http/errors";
import { expertQuery, topExamplesQuery } from "@/api/queries";
import type { ExpertRow } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { pageLinks } from "@/components/runs/page-links";
import { ShadedText } from "@/components/tokens/shaded-text";
import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { Slider } from "@/components/ui/slider";
import { useDraggedValue } from "@/hooks/use-dragged-value";
import {
  type Edit,
  EDIT_MODES,
  type EditMode,
  INITIAL_STRENGTH,
  MAX_STRENGTH,
  strengthDigits,
} from "@/lib/edits/edits";

import { type Activity, hasNoEffect } from "./activity";
import { EditCondition } from "./edit-condition";
import { describeStrength, editScale, isExcessive } from "./edit-scale";

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

interface SnippetsProps {
  readonly run: string;
  readonly row: ExpertRow;
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

function Snippets({ run, row }: SnippetsProps) {
  const { data } = useQuery(topExamplesQuery(run, row.expert, NUM_SNIPPETS));
  if (data === undefined) return <NoSnippets />;
  return (
    <div className="snippets">
      {data.examples.map((context) => (
        <p key={context.rank}>
          <span>
            <ShadedText context={context} before={4} after={8} largest={row.max_activation} />
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
        <ExpertLabel label={row?.label ?? null} automatic={row?.automatic} topTokens={tokens} />
        {row?.label == null && <span className="sr">Expert {edit.expert}</span>}
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
  readonly edit: Edit;
  readonly mode: Exclude<EditMode, "ablate">;
  readonly value: number;
  readonly onDrag: (strength: number) => void;
  readonly onChange: (strength: number) => void;
}

export function StrengthSlider({ edit, mode, value, onDrag, onChange }: StrengthProps) {
  const scale = editScale(mode);
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
        {mode === "ablate" ? (
          <span className="field number" data-disabled="true">
            0
          </span>
        ) : (
          <NumberInput
            label={`Strength of expert ${edit.expert}`}
            value={value}
            digits={strengthDigits(Number(value.toFixed(3)))}
            min={-MAX_STRENGTH}
            max={MAX_STRENGTH}
            prefix={editScale(mode).sign}
            onCommit={setStrength}
          />
        )}
      </div>
      {mode !== "ablate" && (
        <StrengthSlider edit={edit} mode={mode} value={value} onDrag={drag} onChange={setStrength} />
      )}
      {isLoading && mode !== "scale" && <p className="card-note">&nbsp;</p>}
      <Note edit={{ ...edit, strength: value }} row={row} activity={activity} onChange={onChange} />
      <EditCondition edit={edit} onChange={onChange} />
    </li>
  );
}
