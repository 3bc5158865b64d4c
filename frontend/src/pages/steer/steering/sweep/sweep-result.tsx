/** Strength sweep: one edit at several strengths, with the strength to use. */

import { useState } from "react";
import { ListBox, ListBoxItem, Popover, Select } from "react-aria-components";
import { Link } from "react-router";

import { streamStrengthSweep } from "@/api/http/stream";
import type {
  ConceptScore,
  SteeringRequest,
  StrengthSweepDoneEvent,
  StrengthSweepProgressEvent,
  StrengthSweepRequest,
} from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button, TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { useStreamedWork } from "@/hooks/use-streamed-work";
import { describeEdit, type Edit, editKey, hasStrength, type StrengthEdit } from "@/lib/edits/edits";
import { formatFixed } from "@/lib/text/format";
import { toOneLine } from "@/lib/text/token-text";

import {
  describeSample,
  describeScore,
  formatShare,
  rowsSoFar,
  SWEEP_STRENGTHS,
  sweepKey,
  sweepRequest,
  type SweepRowData,
} from "./sweep";

/** The texts of the edited expert, or of the control. */
type Shown = "steered" | "control";

interface SweepTableProps {
  readonly rows: readonly SweepRowData[];
  readonly suggested: number | null;
  readonly current: number;
  readonly shown: Shown;
  readonly describe: (strength: number) => string;
  readonly onChoose: (strength: number) => void;
}

interface ScoreBarProps extends Pick<SweepTableProps, "shown"> {
  readonly score: ConceptScore | undefined;
  readonly largest: number;
}

/** Bar of the shown texts, with a mark at the score of the others. */
function ScoreBar({ score, largest, shown }: ScoreBarProps) {
  if (score === undefined) return <span className="dim">–</span>;
  const other = shown === "steered" ? "control" : "steered";
  const width = (value: number) => `${(100 * value) / largest}%`;
  return (
    <span className="sweep-score" title={describeScore(score)}>
      <span className="num">{formatShare(score[shown])}</span>
      <span className="sweep-bar" aria-hidden="true">
        <i style={{ width: width(score[shown]) }} />
        <b style={{ left: width(score[other]) }} />
      </span>
      <span className="sr">
        % ({other} {formatShare(score[other])} %)
      </span>
    </span>
  );
}

interface RowProps extends Omit<SweepTableProps, "rows" | "suggested" | "current"> {
  readonly row: SweepRowData;
  readonly isCurrent: boolean;
  readonly isSuggested: boolean;
  /** Largest score of each measure, for the bars. */
  readonly largest: { readonly activation: number; readonly promoted: number };
}

function SweepRow({ row, isCurrent, isSuggested, largest, shown, describe, onChoose }: RowProps) {
  const { perplexity_ratio: ratio } = row;
  const isBroken = shown === "steered" && row.is_fluent === false;
  const text = shown === "steered" ? row.text : row.control_text;
  const ofSteered = shown === "steered" ? "" : " (steered)";
  return (
    <tr data-current={isCurrent || undefined} data-broken={isBroken || undefined}>
      <th scope="row">
        <button type="button" className="link" aria-pressed={isCurrent} onClick={() => onChoose(row.strength)}>
          {describe(row.strength)}
        </button>
        {isSuggested && <span className="chip">suggested</span>}
      </th>
      <td className="sweep-text">{text === undefined ? "" : `…${toOneLine(text, true)}`}</td>
      <td data-name="mean activation, % of p99">
        <ScoreBar score={row.activation} largest={largest.activation} shown={shown} />
      </td>
      <td data-name="promoted, %">
        <ScoreBar score={row.promoted} largest={largest.promoted} shown={shown} />
      </td>
      <td className="num" data-name={`KL, nats${ofSteered}`}>
        {row.kl === undefined ? "–" : formatFixed(row.kl)}
      </td>
      <td className="num" data-name={`perplexity${ofSteered}`}>
        {ratio === undefined ? "–" : `× ${formatFixed(ratio, 1)}`}
      </td>
    </tr>
  );
}

/** A tiny score never fills a bar. */
const SMALLEST_FULL_BAR = 0.05;

/** The row of texts by strength, each with concept scores beside the control's, effect and fluency. */
function SweepTable({ rows, suggested, current, ...props }: SweepTableProps) {
  const largestOf = (measure: "activation" | "promoted") =>
    Math.max(
      SMALLEST_FULL_BAR,
      ...rows.flatMap(({ [measure]: score }) => (score === undefined ? [] : [score.steered, score.control])),
    );
  const largest = { activation: largestOf("activation"), promoted: largestOf("promoted") };
  const ofSteered = props.shown === "control" && <small className="unit">of steered texts</small>;
  const nearest = rows.toSorted((a, b) => Math.abs(a.strength - current) - Math.abs(b.strength - current))[0];
  return (
    <table className="sweep-table">
      <thead>
        <tr>
          <th scope="col">Strength</th>
          <th scope="col">{props.shown === "steered" ? "Steered text" : "Control text"}</th>
          <th scope="col">
            <Term id="concept_activation">Mean activation</Term> <span className="unit">% of p99</span>
          </th>
          <th scope="col">
            <Term id="promoted_share">Promoted</Term> <span className="unit">% of tokens</span>
          </th>
          <th scope="col" className="num">
            <Term id="kl">KL</Term> <span className="unit">nats</span>
            {ofSteered}
          </th>
          <th scope="col" className="num">
            <Term id="perplexity_ratio">Perplexity</Term>
            {ofSteered}
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <SweepRow
            key={row.strength}
            row={row}
            largest={largest}
            isCurrent={row === nearest}
            isSuggested={row.strength === suggested}
            {...props}
          />
        ))}
      </tbody>
    </table>
  );
}

type Sweep = ReturnType<typeof useSweep>;

/** Measures an edit at several strengths in one request. */
function useSweep(run: string) {
  /** Identifies the measured request and edit. */
  const [key, setKey] = useState("");
  const [result, setResult] = useState<StrengthSweepDoneEvent | null>(null);
  const work = useStreamedWork<StrengthSweepRequest, StrengthSweepProgressEvent, StrengthSweepDoneEvent>(
    (request, signal) => streamStrengthSweep(run, request, signal),
    setResult,
  );
  const measure = (request: SteeringRequest, edit: StrengthEdit) => {
    setKey(sweepKey(request, edit));
    setResult(null);
    work.start(sweepRequest(request, edit));
  };
  return { ...work, key, result, measure };
}

interface SweepPaneProps {
  readonly run: string;
  readonly request: SteeringRequest;
  readonly edits: readonly Edit[];
  readonly onChange: (edit: Edit) => void;
}

function EditChoice({ edits, edit, onEdit }: Pick<SweepForEditProps, "edits" | "edit" | "onEdit">) {
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

interface SampleProps {
  readonly done: StrengthSweepDoneEvent;
  readonly run: string;
  readonly shown: Shown;
}

/** What the figures are measured on and compared with. */
function Sample({ done, run, shown }: SampleProps) {
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
  readonly edit: StrengthEdit;
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
  readonly edits: readonly StrengthEdit[];
  readonly edit: StrengthEdit;
  readonly onEdit: (key: string) => void;
}

function SweepForEdit({ run, request, edits, edit, onEdit, onChange }: SweepForEditProps) {
  const sweep = useSweep(run);
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
            <Button size="small" icon="chart" onClick={() => sweep.measure(request, edit)}>
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
  const sweepable = props.edits.filter(hasStrength);
  const edit = sweepable.find((one) => editKey(one) === chosen) ?? sweepable[0];
  if (edit === undefined) return null;
  return <SweepForEdit {...props} edits={sweepable} edit={edit} onEdit={setChosen} />;
}
