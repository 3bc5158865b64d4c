/** Strength: one edit of the tray at several strengths, measured as soon as there are a prompt and an edit. */

import { useEffect, useState } from "react";
import { Link, useLocation } from "react-router";

import { streamStrengthSweep } from "@/api/http";
import { isEmptyPrompt } from "@/api/queries";
import type {
  ConceptScore,
  RunSummary,
  SteeringRequest,
  StrengthSweepDoneEvent,
  StrengthSweepProgressEvent,
  StrengthSweepRequest,
} from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { useTray } from "@/components/tray/tray-context";
import { Button, LinkButton } from "@/components/ui/button";
import { Remaining } from "@/components/ui/remaining";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { EmptyState } from "@/components/ui/states";
import { useBestExperts } from "@/hooks/use-experts";
import { useStreamedWork } from "@/hooks/use-streamed-work";
import { writeParams } from "@/hooks/use-url-state";
import { rememberStrength } from "@/lib/browser/stores";
import {
  describeEdit,
  type Edit,
  editKey,
  formatEdits,
  hasStrength,
  NEUTRAL_STRENGTH,
  newEdit,
  type StrengthEdit,
} from "@/lib/edits/edits";
import { formatCount, formatFixed, formatPlural } from "@/lib/text/format";
import { toOneLine } from "@/lib/text/token-text";
import { STEER_PROMPT } from "@/pages/explore/expert/expert-params";

import type { SteeringPageState } from "./index";
import { PromptHead, waitingFor } from "./prompt-head";
import { Gallery, useSavedSessions } from "./sessions";
import { paramsToPrompt, STEERING_PARAMS } from "./steering-params";
import {
  describeSample,
  describeScore,
  formatShare,
  intervalOf,
  isEarly,
  editsAt,
  rowsSoFar,
  SAMPLES,
  SWEEP_STRENGTHS,
  sweepKey,
  sweepRequest,
  type SweepRowData,
} from "./sweep";
import { type Prices, usePrices } from "./use-prices";

/**
 * Measures an edit at several strengths in one request, whenever the request or the edit's kind changes; with more
 * samples on demand.
 */
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
  /** The sweep that has more samples, by its usual key. */
  const [enlarged, setEnlarged] = useState<string | null>(null);
  const usual = edit === undefined ? null : sweepKey(request, edit, SAMPLES.few);
  const isLarge = usual !== null && usual === enlarged;
  const samples = isLarge ? SAMPLES.many : SAMPLES.few;
  const key = edit === undefined ? null : sweepKey(request, edit, samples);
  const measure = () => {
    if (edit === undefined) stop();
    else start(sweepRequest(request, edit, samples));
  };
  // eslint-disable-next-line react-hooks/exhaustive-deps -- the key contains everything that determines the texts
  useEffect(measure, [key]);
  const isMeasured = work.status !== "working" && done?.key === key;
  const result = isMeasured ? done.event : null;
  const addSamples = result?.is_unclear === true && !isLarge ? () => setEnlarged(usual) : null;
  return { ...work, measure, stop, result, samples, addSamples };
}

interface ProgressProps {
  readonly progress: StrengthSweepProgressEvent | null;
  readonly strengths: number;
}

/** What the server does now. Until the running texts have ended, it reports progress without a total. */
function Progress({ progress, strengths }: ProgressProps) {
  const { queue_position: before = 0, texts = [], tokens = 0, total = 0 } = progress ?? {};
  const scored = texts.filter(({ activation }) => activation !== null).length;
  const written = total === 0 ? "" : `, ${formatCount(tokens)} of ${formatCount(total)} tokens`;
  const writing = scored === 0 ? `Generating${written}` : `Scored ${scored} of ${strengths} strengths`;
  return (
    <label className="dim row" aria-live="off">
      <span>
        {before > 0 ? `${formatPlural(before, "request")} ahead` : writing}
        {texts.length === strengths && <Remaining done={tokens} total={total} every={1} />}
      </span>
      <progress {...(tokens > 0 && { value: tokens / total })} />
    </label>
  );
}

/** What is missing for a sweep, and what can be swept at once: an expert, or the edit of a saved text. */
function NoSweep({ run, state }: StrengthViewProps) {
  const hasAblated = state.edits.length > 0 && !state.edits.some(hasStrength);
  const isEmpty = state.draft.text === "" && isEmptyPrompt(paramsToPrompt(state.params));
  const first = `${isEmpty ? "Type a prompt, and add" : "Add"} an expert to the tray`;
  const title = state.edits.length === 0 ? first : waitingFor(state, "Measure");
  const [best] = useBestExperts(run.name, run.indexed_tokens !== null).experts;
  const prompt = state.draft.text || STEER_PROMPT;
  const saved = { run, most: 6, only: "sweeps" } as const;
  const hasSaved = useSavedSessions(saved)?.length !== 0;
  return (
    <div className="steering-empty">
      <EmptyState title={hasAblated ? "Ablated experts have no strength" : title}>
        <p>
          {hasAblated ? "Scale, add or set an expert instead. " : ""}
          Then the prompt is continued at several strengths, beside a random expert. The smallest strength that makes
          the expert’s tokens clearly more probable and leaves the text fluent is suggested, and its side effects can be
          measured.
        </p>
        {state.edits.length === 0 && best !== undefined && !hasSaved && (
          <LinkButton
            icon="chart"
            to={pageLinks(run.name).page("strength", { prompt, edits: formatEdits([newEdit(best.expert)]) })}
          >
            Measure expert {best.expert} as an example
          </LinkButton>
        )}
      </EmptyState>
      <Gallery {...saved} />
    </div>
  );
}

interface ScoreBarProps {
  readonly score: ConceptScore | null | undefined;
  /** End of the axis. */
  readonly largest: number;
}

/**
 * A band from the control's score to the limit of a clear difference, and a dot, which is filled beyond the band, on a
 * line of two standard errors to each side.
 */
function ScoreBar({ score, largest }: ScoreBarProps) {
  if (score == null) return null;
  const percent = (value: number) => `${(100 * value) / largest}%`;
  const [low, high] = intervalOf(score);
  return (
    <span className="sweep-score" title={describeScore(score)}>
      <span className="num">{formatShare(score.steered)}</span>
      <span className="sweep-bar" aria-hidden="true">
        <s style={{ left: percent(score.control), width: percent(score.clear_from - score.control) }} />
        <b style={{ left: percent(low), width: percent(high - low) }} />
        <i data-clear={score.exceeds_control || undefined} style={{ left: percent(score.steered) }} />
      </span>
      <span className="sr">
        % (control {formatShare(score.control)} %, clear from {formatShare(score.clear_from)} %)
      </span>
    </span>
  );
}

/** The first one judges. */
const MEASURES = {
  promoted: { name: "Probability of promoted tokens", short: "Promoted", unit: "%", term: "promoted_share" },
  activation: { name: "Mean activation", short: "Activation", unit: "% of p99", term: "concept_activation" },
} as const;
type Measure = keyof typeof MEASURES;
const MEASURE_NAMES = Object.keys(MEASURES) as readonly Measure[];

/** The axis of tiny scores ends here. */
const SMALLEST_END = 0.05;
/** Room after the largest value, so that its end is seen. */
const ROOM = 1.05;

/** The end of a measure's axis. */
function axisEnd(rows: readonly SweepRowData[], measure: Measure): number {
  const ends = rows.flatMap(({ [measure]: score }) => (score == null ? [] : [intervalOf(score)[1], score.clear_from]));
  return ROOM * Math.max(SMALLEST_END, ...ends);
}

/** What the edits cost at one strength, or the button that measures it. */
function Cost({ costs, index }: { readonly costs: Prices; readonly index: number }) {
  const price = costs.prices[index] ?? null;
  if (price !== null) return <span title={price.verdict}>{price.figures}</span>;
  const { done = 0, total = 0 } = costs.progress ?? {};
  const isWorking = costs.working === index;
  return (
    <>
      {isWorking && <progress {...(done > 0 && { value: done / total })} />}
      <button
        type="button"
        className="link"
        title={costs.hint}
        onClick={isWorking ? costs.stop : () => costs.measure(index)}
      >
        {isWorking ? "stop" : "measure"}
      </button>
    </>
  );
}

interface SweepTableProps {
  readonly rows: readonly SweepRowData[];
  /** Prices of the edits with `strengths`; null before the end of the sweep, and if they cannot be measured. */
  readonly costs: Prices | null;
  readonly strengths: readonly number[];
  readonly suggested: number | null;
  readonly current: number;
  readonly isControl: boolean;
  readonly describe: (strength: number) => string;
  readonly onChoose: (strength: number) => void;
}

/** The texts by strength, each with concept scores beside the control's, effect, fluency and side effects. */
function SweepTable(props: SweepTableProps) {
  const { rows, isControl } = props;
  return (
    <table className="sweep-table">
      <thead>
        <tr>
          <th scope="col">Strength</th>
          <th scope="col">{isControl ? "Control text" : "Steered text"}</th>
          {MEASURE_NAMES.map((measure) => (
            <th key={measure} scope="col">
              <Term id={MEASURES[measure].term}>{MEASURES[measure].name}</Term>{" "}
              <span className="unit">{MEASURES[measure].unit}</span>
              <span className="row sweep-ends dim" aria-hidden="true">
                <span>{rows.some((row) => row[measure] != null) && "0"}</span>
                <span>{rows.some((row) => row[measure] != null) && formatShare(axisEnd(rows, measure))}</span>
              </span>
            </th>
          ))}
          <th scope="col" className="num">
            <Term id="kl">KL</Term> <span className="unit">nats</span>
          </th>
          <th scope="col" className="num">
            <Term id="perplexity_ratio">Perplexity</Term>
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <SweepRow key={row.strength} {...props} row={row} />
        ))}
      </tbody>
    </table>
  );
}

function SweepRow(props: SweepTableProps & { readonly row: SweepRowData }) {
  const { row, rows, costs, strengths, suggested, current, isControl, describe, onChoose } = props;
  const { strength, perplexity_ratio: ratio, kl } = row;
  const text = isControl ? row.control_text : row.text;
  const isCurrent = strength === current;
  const isBroken = !isControl && row.is_fluent === false;
  return (
    <tr data-current={isCurrent || undefined}>
      <th scope="row">
        <button type="button" className="link" aria-pressed={isCurrent} onClick={() => onChoose(strength)}>
          {describe(strength)}
        </button>
        {strength === suggested && <span className="chip">suggested</span>}
      </th>
      <td className={isBroken ? "sweep-text dim" : "sweep-text"}>
        <span className="clamp">{text === undefined ? "" : `…${toOneLine(text, true)}`}</span>
      </td>
      {MEASURE_NAMES.map((measure) => {
        const { short, unit } = MEASURES[measure];
        const largest = axisEnd(rows, measure);
        return (
          <td key={measure} data-name={`${short}, 0 to ${formatShare(largest)} ${unit}`}>
            <ScoreBar score={row[measure]} largest={largest} />
          </td>
        );
      })}
      <td className="num" data-name="KL">
        {kl !== undefined && formatFixed(kl)}
      </td>
      <td className="num" data-name="Perplexity">
        {ratio !== undefined && `× ${formatFixed(ratio, 1)}`}
      </td>
      {costs !== null && strengths.includes(strength) && (
        <td className="sweep-cost" data-name="Side effects">
          <Cost costs={costs} index={strengths.indexOf(strength)} />
        </td>
      )}
    </tr>
  );
}

const MAX_PROMOTED = 6;

interface SampleProps extends Pick<SweepResultProps, "run" | "request"> {
  readonly samples: number;
  readonly result: StrengthSweepDoneEvent;
}

/** What the figures are measured on and compared with. */
function Sample({ result, run, request, samples }: SampleProps) {
  return (
    <p className="sweep-sample dim">
      A band begins at the score of the <Term id="control_expert">control</Term>,{" "}
      <Link className="link" to={pageLinks(run).expert(result.control)}>
        expert {result.control}
      </Link>
      , a random expert of similar density. It ends where a difference is clear. Filled dots are beyond it, and lines
      extend two standard errors of the difference to each side. {describeSample(request, samples)} The first text per
      strength is shown, in grey if it is no longer fluent. {result.limits} Tokens that the expert promotes here:{" "}
      {result.promoted.slice(0, MAX_PROMOTED).map((text, i) => (
        <TokenChip key={i} text={text} />
      ))}
    </p>
  );
}

interface SweepResultProps {
  readonly sweep: ReturnType<typeof useSweep>;
  readonly steeredRun: string;
  /** The expert's run. */
  readonly run: string;
  readonly request: SteeringRequest;
  readonly edit: StrengthEdit;
  readonly edits: readonly Edit[];
  /** Address of the texts with some edits. */
  readonly textsUrl: (edits: readonly Edit[]) => string;
}

/** The strength to use and its reason, as far as they are known. */
function verdictOf(
  { result, progress }: SweepResultProps["sweep"],
  suggested: string | null,
  row: SweepRowData | undefined,
): readonly [title: string, reason: string] {
  if (suggested !== null && row?.promoted != null) {
    const figures = `${describeScore(row.promoted)}, perplexity × ${formatFixed(row.perplexity_ratio ?? 1, 1)}`;
    return [
      `Use ${suggested}${result === null ? " so far" : ""}`,
      `The smallest strength with fluent texts and a clear difference in promoted tokens: ${figures}. `,
    ];
  }
  if (result !== null) return ["No suggestion", `${result.verdict} `];
  return [isEarly(progress ?? {}) ? "" : "None of the strengths stands out so far", ""];
}

/** The verdict, and the texts by strength as they arrive. */
function SweepResult({ sweep, steeredRun, run, request, edit, edits, textsUrl }: SweepResultProps) {
  const { result, progress, status, samples, addSamples } = sweep;
  const tray = useTray();
  const [shown, setShown] = useState<"steered" | "control">("steered");
  const at = (strength: number) => editsAt(edits, edit, strength);
  const describe = (strength: number) =>
    strength === 0 ? "0" : describeEdit({ mode: edit.mode, strength }).replace(/\.0$/, "");
  const suggested = (result ?? progress)?.suggested ?? null;
  const rows = result?.points ?? rowsSoFar(SWEEP_STRENGTHS[edit.mode], progress ?? {});
  const strengths = SWEEP_STRENGTHS[edit.mode].filter((strength) => strength !== NEUTRAL_STRENGTH[edit.mode]);
  const prices = usePrices(steeredRun, strengths.map(at));
  const costs = result !== null && prices.canMeasure ? prices : null;
  const isFinal = result !== null && suggested !== null;
  const row = rows.find(({ strength }) => strength === suggested);
  const [title, reason] = verdictOf(sweep, suggested === null ? null : describe(suggested), row);
  useEffect(() => {
    if (isFinal && edit.mode === "add") rememberStrength(run, edit.expert, suggested);
  }, [isFinal, suggested, edit.mode, run, edit.expert]);
  return (
    <>
      <div className="sweep-verdict" role="status">
        <h2>{title || <Term id="strength_sweep">Strength sweep</Term>}</h2>
        {status === "working" && <Progress progress={progress} strengths={SWEEP_STRENGTHS[edit.mode].length} />}
        <SegmentedControl
          label="Texts to show"
          value={shown}
          onChange={setShown}
          segments={segmentsOf({ steered: "Steered", control: "Control" })}
        />
        {addSamples !== null && (
          <Button icon="plus" title={`${SAMPLES.many} texts per strength, not ${SAMPLES.few}`} onClick={addSamples}>
            More samples
          </Button>
        )}
        {suggested !== null && (
          <LinkButton variant={isFinal ? "primary" : "plain"} icon="steering" to={textsUrl(at(suggested))}>
            Steer with {describe(suggested)}
          </LinkButton>
        )}
        <p>
          {reason}
          <span className="dim">
            Press a strength to put it into the tray.
            {!rows.some(({ strength }) => strength === edit.strength) && ` The tray has ${describe(edit.strength)}.`}
          </span>
        </p>
      </div>
      <SweepTable
        {...{ rows, costs, strengths, suggested }}
        current={edit.strength}
        isControl={shown === "control"}
        describe={(strength) => (strength === 0 && edits.length > 1 ? "0, others stay" : describe(strength))}
        onChoose={(strength) => tray.put({ ...edit, strength })}
      />
      {result !== null && <Sample {...{ result, run, request, samples }} />}
    </>
  );
}

interface StrengthViewProps {
  readonly run: RunSummary;
  readonly state: SteeringPageState;
}

export function StrengthView({ run, state }: StrengthViewProps) {
  const { params, edits, request, draft } = state;
  const { search } = useLocation();
  const [chosen, setChosen] = useState<string | null>(null);
  const hasPrompt = !isEmptyPrompt(paramsToPrompt(params));
  const sweepable = edits.filter(hasStrength);
  const edit = hasPrompt ? (sweepable.find((one) => editKey(one) === chosen) ?? sweepable[0]) : undefined;
  const sweep = useSweep(run.name, request, edit);
  const textsUrl = (changed: readonly Edit[]) =>
    (params.turns.length > 0 ? "/chat" : "/steering") + writeParams(STEERING_PARAMS, search, { edits: changed });
  return (
    <>
      <PromptHead
        run={run}
        state={state}
        action="Measure"
        onSubmit={draft.text === params.prompt ? sweep.measure : draft.commit}
        onStop={sweep.status === "working" ? sweep.stop : null}
      />
      {edit === undefined ? (
        <NoSweep run={run} state={state} />
      ) : (
        <section className="strength-sweep" aria-label="Strength sweep" aria-busy={sweep.status === "working"}>
          {sweepable.length > 1 && (
            <select
              aria-label="Edit to measure"
              value={editKey(edit)}
              onChange={(event) => setChosen(event.target.value)}
            >
              {sweepable.map((one) => (
                <option key={editKey(one)} value={editKey(one)}>
                  {editKey(one)} {describeEdit(one)}
                </option>
              ))}
            </select>
          )}
          {sweep.failure !== null && <p className="bad">{sweep.failure}</p>}
          <SweepResult
            {...{ sweep, request, edit, edits, textsUrl }}
            steeredRun={run.name}
            run={edit.run ?? run.name}
          />
        </section>
      )}
    </>
  );
}
