/** Strength sweep: one edit at several strengths, with the strength to use. */

import { useState } from "react";
import { ListBox, ListBoxItem, Popover, Select } from "react-aria-components";
import { Link } from "react-router";

import type { StrengthSweepDoneEvent, SteeringRequest } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { describeEdit, type Edit, editKey } from "@/lib/edits/edits";

import { describeSample, sweepKey, rowsSoFar, SWEEP_STRENGTHS, type SweepMode } from "./sweep";
import { SweepTable } from "./sweep-table";
import { type Sweep, useSweep } from "./use-sweep";

type Shown = "steered" | "control";
type SweepEdit = Edit & { readonly mode: SweepMode };

interface SweepPaneProps {
  readonly run: string;
  readonly request: SteeringRequest;
  readonly edits: readonly Edit[];
  readonly onChange: (edit: Edit) => void;
}

function EditChoice({
  edits,
  edit,
  onEdit,
}: {
  edits: readonly SweepEdit[];
  edit: SweepEdit;
  onEdit: (key: string) => void;
}) {
  if (edits.length === 1) return <span className="chip mono">{editKey(edit)}</span>;
  return (
    <Select
      // The accessible name must contain the visible text.
      aria-label={`Edit to measure: ${editKey(edit)}`}
      value={editKey(edit)}
      onChange={(key) => key !== null && onEdit(String(key))}
    >
      <TriggerButton className="chip mono">
        {editKey(edit)}
        <Icon name="chevronDown" />
      </TriggerButton>
      <Popover className="popover" placement="top start">
        <ListBox items={edits.map((one) => ({ id: editKey(one), one }))}>
          {({ id, one }) => (
            <ListBoxItem id={id} textValue={id}>
              <span className="mono">{id}</span> <span className="dim">{describeEdit(one)}</span>
            </ListBoxItem>
          )}
        </ListBox>
      </Popover>
    </Select>
  );
}

const MAX_PROMOTED = 6;

/** What the figures are measured on and compared with. */
function Sample({
  done,
  run,
  shown,
}: {
  readonly done: StrengthSweepDoneEvent;
  readonly run: string;
  readonly shown: Shown;
}) {
  return (
    <p className="sweep-sample dim">
      The first text per strength is shown. {shown === "steered" && <>Texts that are no longer fluent are greyed. </>}
      Tokens that the expert promotes here:{" "}
      {done.promoted.slice(0, MAX_PROMOTED).map((text, i) => (
        <TokenChip key={i} text={text} />
      ))}{" "}
      <Term id="control_expert">Control</Term>:{" "}
      <Link className="link" to={pageLinks(run).expert(done.control)}>
        expert {done.control}
      </Link>
      , a random expert of similar density. Marks on the bars: {shown === "steered" ? "control" : "steered"} texts.
    </p>
  );
}

/** The current stage. Until the running texts have ended, the server reports progress without a total. */
function sweepTask(isKnown: boolean, isReading: boolean, tokens: number, total: number): string {
  if (isKnown && total === 0) return "Waiting for the running texts";
  if (isReading) return "Reading the prompt";
  return tokens < total ? "Generating" : "Scoring the texts";
}

/** What the server does now. The bar moves by itself until the first tokens arrive. */
function SweepProgress({ progress, strengths }: { readonly progress: Sweep["progress"]; readonly strengths: number }) {
  const { queue_position: before = 0, texts = [], tokens = 0, total = 0 } = progress ?? {};
  if (before > 0) {
    return (
      <span className="dim">
        {before} {before === 1 ? "request ahead" : "requests ahead"}
      </span>
    );
  }
  const task = sweepTask(progress !== null, texts.length < strengths, tokens, total);
  return (
    <label className="dim sweep-progress">
      {task} <progress {...(tokens > 0 && { value: tokens / total })} />
    </label>
  );
}

interface SweepResultProps {
  readonly sweep: Sweep;
  /** The expert's run. */
  readonly run: string;
  readonly request: SteeringRequest;
  readonly edit: SweepEdit;
  readonly onChange: (edit: Edit) => void;
}

/** The verdict once all texts are scored, and the texts by strength as they arrive. */
function SweepResult({ sweep: { result, progress }, run, request, edit, onChange }: SweepResultProps) {
  const [shown, setShown] = useState<Shown>("steered");
  const describe = (strength: number) =>
    strength === 0 ? "0" : describeEdit({ mode: edit.mode, strength }).replace(/\.0$/, "");
  const choose = (strength: number) => onChange({ ...edit, strength });
  const suggested = result?.suggested ?? null;
  const rows = result?.points ?? rowsSoFar(SWEEP_STRENGTHS[edit.mode], progress?.texts ?? []);
  return (
    <>
      <div className="sweep-verdict" role="status">
        <span>
          {result === null ? "Choose a strength now, or wait for the suggestion." : result.verdict}
          {result !== null && <small className="dim">{describeSample(request)}</small>}
        </span>
        {suggested !== null && suggested !== edit.strength && (
          <Button size="small" variant="primary" onClick={() => choose(suggested)}>
            Use {describe(suggested)}
          </Button>
        )}
        <SegmentedControl
          label="Texts to show"
          value={shown}
          onChange={setShown}
          segments={[
            { value: "steered", label: "Steered" },
            { value: "control", label: "Control" },
          ]}
        />
      </div>
      <SweepTable
        rows={rows}
        suggested={suggested}
        current={edit.strength}
        shown={shown}
        describe={describe}
        onChoose={choose}
      />
      {result !== null && <Sample done={result} run={run} shown={shown} />}
    </>
  );
}

interface SweepForEditProps extends Omit<SweepPaneProps, "edits"> {
  readonly edits: readonly SweepEdit[];
  readonly edit: SweepEdit;
  readonly onEdit: (key: string) => void;
}

function SweepForEdit({ run, request, edits, edit, onEdit, onChange }: SweepForEditProps) {
  const { sweep, measure } = useSweep(run);
  const isCurrent = sweep.key === sweepKey(request, edit);
  const isMeasuring = isCurrent && sweep.status === "working";
  return (
    <section className="strength-sweep" aria-label="Strength sweep">
      <div className="pane-h">
        <h2>
          <Term id="strength_sweep">Strength sweep</Term>
        </h2>
        <span className="note">{edit.mode}, expert</span>
        <EditChoice edits={edits} edit={edit} onEdit={onEdit} />
        {isMeasuring && <SweepProgress progress={sweep.progress} strengths={SWEEP_STRENGTHS[edit.mode].length} />}
        <span className="grow" />
        {isMeasuring ? (
          <Button size="small" icon="stop" onClick={sweep.stop}>
            Stop
          </Button>
        ) : (
          (!isCurrent || sweep.result === null) && (
            <Button size="small" icon="chart" onClick={() => measure(request, edit)}>
              Suggest a strength
            </Button>
          )
        )}
      </div>
      {isCurrent && sweep.failure !== null && <p className="bad">{sweep.failure}</p>}
      {(isMeasuring || (isCurrent && sweep.result !== null)) && (
        <SweepResult sweep={sweep} run={edit.run ?? run} request={request} edit={edit} onChange={onChange} />
      )}
    </section>
  );
}

export function SweepPane(props: SweepPaneProps) {
  const [chosen, setChosen] = useState<string | null>(null);
  const sweepable = props.edits.filter((edit): edit is SweepEdit => edit.mode !== "ablate");
  const edit = sweepable.find((one) => editKey(one) === chosen) ?? sweepable[0];
  if (edit === undefined) return null;
  return <SweepForEdit {...props} edits={sweepable} edit={edit} onEdit={setChosen} />;
}
