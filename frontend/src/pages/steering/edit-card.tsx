/** One edit: whose it is, where that expert fires, and how far it is turned. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { messageOf } from "@/api/errors";
import { expertQuery, topContextsQuery } from "@/api/queries";
import type { ExpertRow } from "@/api/types";
import { Button } from "@/components/button";
import { ExpertLabel } from "@/components/expert-ref";
import { pageLinks } from "@/components/links";
import { NumberInput } from "@/components/number-input";
import { Segmented } from "@/components/segmented";
import { Slider } from "@/components/slider";
import { ShadedText } from "@/components/tokens/shaded-text";
import { type Edit, EDIT_MODES, type EditMode, FIRST_STRENGTH, STRONGEST } from "@/lib/edits";

import { type Activity, hasNothingToAct } from "./activity";
import { editScale, strengthDigits, strengthInWords } from "./edit-scale";

const SNIPPETS = 2;

interface EditCardProps {
  /** The run whose expert it is. */
  readonly run: string;
  readonly edit: Edit;
  /** False where the run has no contexts and statistics yet. */
  readonly isIndexed: boolean;
  readonly activity: Activity | null;
  readonly onChange: (edit: Edit) => void;
  readonly onRemove: () => void;
}

interface SnippetsProps {
  readonly run: string;
  readonly row: ExpertRow;
}

function Snippets({ run, row }: SnippetsProps) {
  const { data } = useQuery(topContextsQuery(run, row.expert, SNIPPETS));
  return (
    <div className="snippets">
      {data === undefined
        ? Array.from({ length: SNIPPETS }, (_, i) => <p key={i} />)
        : data.contexts.map((context) => (
            <p key={context.rank}>
              <span>
                <ShadedText context={context} before={4} after={8} largest={row.largest} />
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
        aria-label={`Take expert ${edit.expert} out of the tray`}
        onClick={onRemove}
      />
    </header>
  );
}

interface StrengthProps {
  readonly edit: Edit;
  readonly mode: Exclude<EditMode, "off">;
  readonly value: number;
  readonly onDrag: (strength: number) => void;
  readonly onChange: (strength: number) => void;
}

function StrengthSlider({ edit, mode, value, onDrag, onChange }: StrengthProps) {
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

/** What the strength comes to, or why it comes to nothing here. */
function Note({ edit, row, activity, onChange }: NoteProps) {
  if (edit.mode === "scale" && hasNothingToAct(edit, activity)) {
    const add = { ...edit, mode: "add", strength: FIRST_STRENGTH.add } as const;
    return (
      <p className="card-note">
        Not active in this prompt or text, so there is nothing to scale.{" "}
        <button type="button" className="link" onClick={() => onChange(add)}>
          Add to it instead
        </button>
      </p>
    );
  }
  if (hasNothingToAct(edit, activity)) return <p className="card-note">Not active in this prompt or text anyway.</p>;
  if (edit.mode === "off") return <p className="card-note">Never active while this is on.</p>;
  if (Math.abs(edit.strength) === STRONGEST) {
    return <p className="card-note">This is as far as a strength goes: −1,000 to 1,000.</p>;
  }
  const words = strengthInWords(edit.mode, edit.strength, row);
  return words === "" ? null : <p className="card-note">{words}</p>;
}

export function EditCard({ run, edit, isIndexed, activity, onChange, onRemove }: EditCardProps) {
  const { data, error } = useQuery({ ...expertQuery(run, edit.expert), enabled: isIndexed });
  const [dragged, setDragged] = useState<number | null>(null);
  const [remembered, setRemembered] = useState<Partial<Record<EditMode, number>>>({});
  const { mode } = edit;
  const row = data?.row ?? null;
  const value = dragged ?? edit.strength;
  const setStrength = (strength: number) => {
    setDragged(null);
    const rounded = Number(strength.toFixed(3));
    if (rounded !== edit.strength) onChange({ ...edit, strength: rounded });
  };
  const setMode = (next: EditMode) => {
    setRemembered({ ...remembered, [mode]: edit.strength });
    onChange({ ...edit, mode: next, strength: remembered[next] ?? FIRST_STRENGTH[next] });
  };
  return (
    <li className="edit-card">
      <Head run={run} edit={edit} row={data?.row} onRemove={onRemove} />
      {error !== null && <p className="card-note bad">{messageOf(error)}</p>}
      {row !== null && row.active_tokens > 0 && <Snippets run={run} row={row} />}
      <div className="edit-controls">
        <Segmented
          label={`What is done to expert ${edit.expert}`}
          value={mode}
          onChange={setMode}
          segments={EDIT_MODES.map((name) => ({ value: name, label: name }))}
        />
        <span className="grow" />
        {mode === "off" ? (
          <span className="field number" data-disabled="true">
            off
          </span>
        ) : (
          <NumberInput
            label={`Strength of expert ${edit.expert}`}
            value={value}
            digits={strengthDigits(Number(value.toFixed(3)))}
            min={-STRONGEST}
            max={STRONGEST}
            sign={editScale(mode).sign}
            onCommit={setStrength}
          />
        )}
      </div>
      {mode !== "off" && (
        <StrengthSlider edit={edit} mode={mode} value={value} onDrag={setDragged} onChange={setStrength} />
      )}
      <Note edit={{ ...edit, strength: value }} row={row} activity={activity} onChange={onChange} />
    </li>
  );
}
