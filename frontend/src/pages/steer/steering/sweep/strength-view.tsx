/** Strength: one edit of the tray at several strengths, measured as soon as there are a prompt and an edit. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { ListBox, ListBoxItem, Popover, Select } from "react-aria-components";
import { useLocation } from "react-router";

import { streamStrengthSweep } from "@/api/http/stream";
import { isEmptyPrompt, showcaseQuery } from "@/api/queries";
import type {
  RunSummary,
  SteeringRequest,
  StrengthSweepDoneEvent,
  StrengthSweepProgressEvent,
  StrengthSweepRequest,
} from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { useTray } from "@/components/tray/tray-context";
import { LinkButton, TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { EmptyState } from "@/components/ui/states";
import { useStreamedWork } from "@/hooks/use-streamed-work";
import { writeParams } from "@/hooks/use-url-state";
import { describeEdit, type Edit, editKey, formatEdits, hasStrength, type StrengthEdit } from "@/lib/edits/edits";
import type { SteeringPageState } from "@/pages/steer/steering/index";
import { PromptHead } from "@/pages/steer/steering/inputs/prompt-head";
import { paramsToPrompt, requestEdits, STEERING_PARAMS } from "@/pages/steer/steering/steering-params";

import { SWEEP_STRENGTHS, sweepKey, sweepRequest } from "./sweep";
import { SweepResult } from "./sweep-result";

/** Measures an edit at several strengths in one request, whenever the request or the edit's kind changes. */
function useSweep(run: string, request: SteeringRequest, edit: StrengthEdit | undefined) {
  const [done, setDone] = useState<{ readonly key: string; readonly event: StrengthSweepDoneEvent } | null>(null);
  const { start, stop, ...work } = useStreamedWork<
    StrengthSweepRequest,
    StrengthSweepProgressEvent,
    StrengthSweepDoneEvent
  >(
    (body, signal) => streamStrengthSweep(run, body, signal),
    (event, body) => setDone({ key: JSON.stringify(body), event }),
  );
  const key = edit === undefined ? null : sweepKey(request, edit);
  const measure = () => {
    if (edit !== undefined) start(sweepRequest(request, edit));
  };
  useEffect(() => {
    if (edit === undefined) stop();
    else start(sweepRequest(request, edit));
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the key contains everything that determines the texts
  }, [key]);
  const isMeasured = work.status !== "working" && done?.key === key;
  return { ...work, measure, stop, result: isMeasured ? done.event : null };
}

interface EditChoiceProps {
  readonly edits: readonly StrengthEdit[];
  readonly edit: StrengthEdit;
  readonly onEdit: (key: string) => void;
}

function EditChoice({ edits, edit, onEdit }: EditChoiceProps) {
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
      <Popover className="popover" placement="bottom start">
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

/** The current stage. Until the running texts have ended, the server reports progress without a total. */
function sweepTask(isKnown: boolean, isReading: boolean, tokens: number, total: number): string {
  if (isKnown && total === 0) return "Waiting for the running texts";
  if (isReading) return "Reading the prompt";
  return tokens < total ? "Generating" : "Scoring the texts";
}

/** What the server does now. The bar moves by itself until the first tokens arrive. */
function SweepProgress({
  progress,
  strengths,
}: {
  readonly progress: StrengthSweepProgressEvent | null;
  readonly strengths: number;
}) {
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

/** What is missing for a sweep, and an example of one: the demo's session. */
function NoSweep({ edits, hasPrompt }: { readonly edits: number; readonly hasPrompt: boolean }) {
  const missing = [...(hasPrompt ? [] : ["a prompt above"]), ...(edits > 0 ? [] : ["an expert to the tray"])];
  const { run, steering } = useQuery(showcaseQuery).data?.showcase?.session ?? {};
  return (
    <EmptyState title={missing.length === 0 ? "Ablated experts have no strength" : `Add ${missing.join(" and ")}`}>
      <p>
        {missing.length === 0 ? "Scale, add or set an expert instead. " : ""}
        Then the prompt is continued at seven strengths. The texts are scored beside those of a random expert, and the
        smallest strength that clearly exceeds it is suggested.
      </p>
      {run !== undefined && steering !== undefined && (
        <LinkButton
          icon="chart"
          to={pageLinks(run).page("strength", {
            prompt: steering.prompt ?? "",
            edits: formatEdits(requestEdits(steering.edits ?? [])),
          })}
        >
          Measure an example
        </LinkButton>
      )}
    </EmptyState>
  );
}

interface StrengthViewProps {
  readonly run: RunSummary;
  readonly state: SteeringPageState;
}

export function StrengthView({ run, state }: StrengthViewProps) {
  const { params, edits, request, draft } = state;
  const { search } = useLocation();
  const tray = useTray();
  const [chosen, setChosen] = useState<string | null>(null);
  const hasPrompt = !isEmptyPrompt(paramsToPrompt(params));
  const sweepable = edits.filter(hasStrength);
  const edit = hasPrompt ? (sweepable.find((one) => editKey(one) === chosen) ?? sweepable[0]) : undefined;
  const sweep = useSweep(run.name, request, edit);
  const isMeasuring = sweep.status === "working";
  /** The address of the texts, which have the edit at another strength. */
  const textsUrl = (changed: Edit) => {
    const others = edits.map((one) => (editKey(one) === editKey(changed) ? changed : one));
    return (params.turns.length > 0 ? "/chat" : "/steering") + writeParams(STEERING_PARAMS, search, { edits: others });
  };
  return (
    <>
      <PromptHead
        run={run}
        state={state}
        action="Measure"
        onSubmit={draft.text === params.prompt ? sweep.measure : draft.commit}
        onStop={isMeasuring ? sweep.stop : null}
      />
      {edit === undefined ? (
        <NoSweep edits={edits.length} hasPrompt={hasPrompt} />
      ) : (
        <section className="strength-sweep" aria-label="Strength sweep">
          <div className="pane-h wrap">
            <h2>
              <Term id="strength_sweep">Strength sweep</Term>
            </h2>
            <span className="note">{edit.mode}, expert</span>
            <EditChoice edits={sweepable} edit={edit} onEdit={setChosen} />
            {isMeasuring && <SweepProgress progress={sweep.progress} strengths={SWEEP_STRENGTHS[edit.mode].length} />}
          </div>
          {sweep.failure !== null && <p className="bad">{sweep.failure}</p>}
          <SweepResult
            result={sweep.result}
            progress={sweep.progress}
            run={edit.run ?? run.name}
            request={request}
            edit={edit}
            onChange={tray.put}
            textsUrl={textsUrl}
          />
        </section>
      )}
    </>
  );
}
