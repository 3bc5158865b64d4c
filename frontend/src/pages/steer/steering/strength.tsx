/** Strength: one edit of the tray at several strengths, measured as soon as there are a prompt and an edit. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link, useLocation } from "react-router";

import { streamStrengthSweep } from "@/api/http";
import { isEmptyPrompt, topExamplesQuery } from "@/api/queries";
import type {
  ConceptScore,
  EditPrice,
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
import { describeEdit, editKey, hasStrength, NEUTRAL_STRENGTH, newEdit, type StrengthEdit } from "@/lib/edits/edits";
import { formatCount, formatFixed, formatPlural } from "@/lib/text/format";
import { continuationPrompt } from "@/lib/text/kwic";
import { toOneLine } from "@/lib/text/token-text";

import type { StateProps } from "./index";
import { ExampleLink, PromptHead, waitingFor } from "./prompt-head";
import { Gallery } from "./sessions";
import { STEERING_PARAMS } from "./steering-params";
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
  type SweepPlan,
  sweepKey,
  sweepRequest,
  type SweepRowData,
} from "./sweep";
import { MeasurePrices, type Prices, usePrices } from "./prices";

/**
 * Measures an edit at several strengths in one request, whenever the request or the edit's kind changes; with more
 * samples on demand.
 */
function useSweep(run: string, request: SteeringRequest, edit: StrengthEdit | undefined) {
  const [done, setDone] = useState<{ readonly key: string; readonly event: StrengthSweepDoneEvent } | null>(null);
  const work = useStreamedWork<StrengthSweepRequest, StrengthSweepProgressEvent, StrengthSweepDoneEvent>(
    (body, signal) => streamStrengthSweep(run, body, signal),
    (event, body) => setDone({ key: JSON.stringify(body), event }),
  );
  const usual: SweepPlan = { strengths: SWEEP_STRENGTHS[edit?.mode ?? "add"], samples: SAMPLES.few };
  const usualKey = edit === undefined ? null : sweepKey(request, edit, usual);
  /** Another plan of one sweep, by its usual key. */
  const [changed, setChanged] = useState<{ readonly key: string | null; readonly plan: SweepPlan } | null>(null);
  const plan = changed !== null && changed.key === usualKey ? changed.plan : usual;
  const key = edit === undefined ? null : sweepKey(request, edit, plan);
  const measure = () => {
    if (edit === undefined) work.stop();
    else work.start(sweepRequest(request, edit, plan));
  };
  // eslint-disable-next-line react-hooks/exhaustive-deps -- the key contains everything that determines the texts
  useEffect(measure, [key]);
  const isMeasured = work.status !== "working" && done?.key === key;
  const result = isMeasured ? done.event : null;
  const setPlan = (next: Partial<SweepPlan>) => setChanged({ key: usualKey, plan: { ...plan, ...next } });
  return { ...work, measure, result, plan, setPlan };
}

/** What the server does now. Until the running texts have ended, it reports progress without a total. */
function Progress({ sweep: { progress, plan } }: Pick<SweepResultProps, "sweep">) {
  const strengths = plan.strengths.length;
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
function NoSweep({ state }: StateProps) {
  const { run, edits, draft, prompt } = state;
  const hasAblated = edits.length > 0 && !edits.some(hasStrength);
  const isEmpty = draft.text === "" && isEmptyPrompt(prompt);
  const first = `${isEmpty ? "Type a prompt, and add" : "Add"} an expert to the tray`;
  const title = edits.length === 0 ? first : waitingFor(state, "Measure");
  return (
    <div className="steering-empty">
      <EmptyState title={hasAblated ? "Ablated experts have no strength" : title}>
        <p>
          {hasAblated ? "Scale, add or set an expert instead. " : ""}
          Then the prompt is continued at several strengths, beside a random expert. The smallest strength that makes
          the expert’s tokens clearly more probable and leaves the text fluent is suggested, and its side effects can be
          measured.
        </p>
        {edits.length === 0 && <ExampleLink state={state} view="strength" action="Measure" />}
      </EmptyState>
      <Gallery run={run} most={6} only="sweeps" />
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
        % (random expert {formatShare(score.control)} %, clear from {formatShare(score.clear_from)} %)
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

function axisEnd(rows: readonly SweepRowData[], measure: Measure): number {
  const ends = rows.flatMap(({ [measure]: score }) => (score == null ? [] : [intervalOf(score)[1], score.clear_from]));
  return ROOM * Math.max(SMALLEST_END, ...ends);
}

interface SweepTableProps {
  readonly rows: readonly SweepRowData[];
  /** What the edits cost at a strength; null if it is not measured. */
  readonly priceAt: (strength: number) => EditPrice | null;
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
  const { row, rows, priceAt, suggested, current, isControl, describe, onChoose } = props;
  const { strength, perplexity_ratio: ratio, kl } = row;
  const price = priceAt(strength);
  const text = isControl ? row.control_text : row.text;
  const isCurrent = strength === current;
  const isBroken = !isControl && row.is_fluent === false;
  return (
    <tr data-current={isCurrent || undefined} data-suggested={strength === suggested || undefined}>
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
        {ratio !== undefined && <span className={isBroken ? "bad" : undefined}>× {formatFixed(ratio, 1)}</span>}
      </td>
      {price !== null && (
        <td className="sweep-cost" data-name="Side effects">
          <span className={price.is_costly ? "bad" : undefined} title={`${price.verdict} ${price.ability_parts}`}>
            {price.figures}
          </span>
        </td>
      )}
    </tr>
  );
}

const MAX_PROMOTED = 6;

/** What the figures are measured on and compared with. */
function Sample({ sweep: { result }, run }: SweptProps) {
  if (result === null) return null;
  return (
    <p className="sweep-sample dim">
      Press a strength to put it into the tray. A band begins at the score of the{" "}
      <Term id="control_expert">control</Term>,{" "}
      <Link className="link" to={pageLinks(run).expert(result.control)}>
        expert {result.control}
      </Link>
      , a random expert of similar density. It ends where a difference is clear. Lines extend two standard errors of the
      difference to each side. The first text per strength is shown, in grey where the mean is not fluent.{" "}
      {result.limits} Tokens that the expert promotes here:{" "}
      {result.promoted.slice(0, MAX_PROMOTED).map((text, i) => (
        <TokenChip key={i} text={text} />
      ))}
    </p>
  );
}

interface SweepResultProps extends StateProps {
  readonly sweep: ReturnType<typeof useSweep>;
  readonly edit: StrengthEdit;
}

/** The strength to use and its reason, as far as they are known. */
function verdictOf(
  { result, progress }: SweepResultProps["sweep"],
  suggested: string | null,
  price: EditPrice | null,
): readonly [title: string, reason: string] {
  if (suggested !== null && price?.is_costly === true)
    return [`${suggested} is the smallest clear and fluent strength, but costly`, price.verdict];
  if (suggested !== null)
    return [
      `Use ${suggested}, the smallest clear and fluent strength${result === null ? " so far" : ""}`,
      result?.is_unclear === true ? "With more texts, another strength may be the smallest." : "",
    ];
  if (result !== null) return ["No strength suits", result.verdict];
  return [isEarly(progress ?? {}) ? "" : "None of the strengths stands out so far", ""];
}

/** What a strength buys beside the random expert, and what it costs on these texts and on others. */
function Facts({ row, price }: { readonly row: SweepRowData; readonly price: EditPrice | null }) {
  const { promoted, kl = 0, perplexity_ratio: ratio = 1 } = row;
  return (
    <dl className="sweep-facts">
      <dt>Effect</dt>
      <dd>promoted tokens {promoted != null && describeScore(promoted)}</dd>
      <dt>Cost on these texts</dt>
      <dd>
        perplexity × {formatFixed(ratio, 1)}, KL {formatFixed(kl)} nats
      </dd>
      <dt>
        <Term id="edit_price">Side effects</Term>
      </dt>
      <dd title={price?.ability_parts}>{price?.figures ?? "not measured"}</dd>
    </dl>
  );
}

const range = (strengths: readonly string[]) => `${strengths[0]} to ${strengths.at(-1)}`;

/** Examples among which is a prompt other than the present one. */
const PROMPTS = 2;

interface SweptProps extends SweepResultProps {
  /** The expert's run. */
  readonly run: string;
  readonly describe: (strength: number) => string;
}

/** What to try where no strength suits: other strengths, more texts, another prompt or another expert. */
function Next({ sweep: { result, plan, setPlan }, edit, run, state, describe }: SweptProps) {
  const tray = useTray();
  const other = useBestExperts(run).experts.find(({ expert }) => expert !== edit.expert);
  const { data } = useQuery(topExamplesQuery(run, edit.expert, PROMPTS));
  // Texts on which the expert fires.
  const prompt = data?.examples.map(continuationPrompt).find((text) => text !== state.params.prompt);
  const next = result?.next_strengths ?? [];
  const usual = SWEEP_STRENGTHS[edit.mode];
  return (
    <>
      {next.length > 0 && (
        <Button
          size="small"
          variant="primary"
          onClick={() => setPlan({ strengths: [NEUTRAL_STRENGTH[edit.mode], ...next] })}
        >
          Try {range(next.map(describe))}
        </Button>
      )}
      {plan.strengths !== usual && (
        <Button size="small" onClick={() => setPlan({ strengths: usual })}>
          Back to {range(usual.slice(1).map(describe))}
        </Button>
      )}
      {other !== undefined && (
        <Button size="small" onClick={() => tray.replaceAll([{ ...newEdit(other.expert), ...(edit.run && { run }) }])}>
          Try expert {other.expert}
        </Button>
      )}
      {prompt !== undefined && (
        <Button size="small" onClick={() => state.choose(prompt)}>
          Try the prompt “{prompt}”
        </Button>
      )}
    </>
  );
}

interface ReasonProps extends SweptProps {
  readonly reason: string;
  /** The suggested strength. */
  readonly row: SweepRowData | undefined;
  readonly price: EditPrice | null;
  readonly costs: Prices;
}

/** Why the strength is suggested, or none; and what can be measured next. */
function Reason({ reason, row, price, costs, ...props }: ReasonProps) {
  const { result, plan, setPlan } = props.sweep;
  return (
    <div className="sweep-reason">
      {reason !== "" && <p>{reason}</p>}
      {row !== undefined && <Facts row={row} price={price} />}
      {result !== null && (
        <div className="row wrap">
          {costs.canMeasure && costs.missing > 0 && (
            <MeasurePrices costs={costs} name={`Measure side effects of ${formatPlural(costs.missing, "strength")}`} />
          )}
          {result.is_unclear && plan.samples < SAMPLES.many && (
            <Button size="small" onClick={() => setPlan({ samples: SAMPLES.many })}>
              Measure {SAMPLES.many} texts per strength
            </Button>
          )}
          {row === undefined && <Next {...props} />}
        </div>
      )}
    </div>
  );
}

const KEY = "Dot: steered, filled if clearly above the random expert. Band: not clearly above it.";

/** The verdict, and the texts by strength as they arrive. */
function SweepResult({ state, sweep, edit }: SweepResultProps) {
  const { params, edits } = state;
  const { run = state.run.name } = edit;
  const { result, progress, status, plan } = sweep;
  const tray = useTray();
  const { search } = useLocation();
  const [shown, setShown] = useState<"steered" | "control">("steered");
  const at = (strength: number) => editsAt(edits, edit, strength);
  const textsUrl = (strength: number) =>
    (params.turns.length > 0 ? "/chat" : "/steering") + writeParams(STEERING_PARAMS, search, { edits: at(strength) });
  const describe = (strength: number) =>
    strength === 0 ? "0" : describeEdit({ mode: edit.mode, strength }).replace(/\.0$/, "");
  const suggested = (result ?? progress)?.suggested ?? null;
  const rows = result?.points ?? rowsSoFar(plan.strengths, progress ?? {});
  const strengths = plan.strengths.filter((strength) => strength !== NEUTRAL_STRENGTH[edit.mode]);
  const costs = usePrices(state.run.name, strengths.map(at));
  const priceAt = (strength: number) => costs.prices[strengths.indexOf(strength)] ?? null;
  const isFinal = result !== null && suggested !== null;
  const row = rows.find(({ strength }) => strength === suggested);
  const swept = { state, sweep, edit, run, describe };
  const price = row ? priceAt(row.strength) : null;
  const [title, reason] = verdictOf(sweep, suggested === null ? null : describe(suggested), price);
  useEffect(() => {
    if (isFinal && edit.mode === "add") rememberStrength(run, edit.expert, suggested);
  }, [isFinal, suggested, edit.mode, run, edit.expert]);
  return (
    <>
      <div className="row wrap sweep-verdict" role="status">
        <h2>{title || <Term id="strength_sweep">Strength sweep</Term>}</h2>
        {status === "working" && <Progress sweep={sweep} />}
        <SegmentedControl
          label="Texts to show"
          value={shown}
          onChange={setShown}
          segments={segmentsOf({ steered: "Steered", control: "Control" })}
        />
        {suggested !== null && (
          <LinkButton
            variant={isFinal && price?.is_costly !== true ? "primary" : "plain"}
            icon="steering"
            to={textsUrl(suggested)}
          >
            Steer with {describe(suggested)}
          </LinkButton>
        )}
        <Reason {...swept} {...{ reason, row, price, costs }} />
      </div>
      <p className="dim">{`${KEY} ${describeSample(state.request, plan.samples)}`}</p>
      <SweepTable
        {...{ rows, priceAt, suggested }}
        current={edit.strength}
        isControl={shown === "control"}
        describe={(strength) => (strength === 0 && edits.length > 1 ? "0, others stay" : describe(strength))}
        onChoose={(strength) => tray.put({ ...edit, strength })}
      />
      <Sample {...swept} />
    </>
  );
}

export function StrengthView({ state }: StateProps) {
  const { run, params, edits, request, draft, prompt } = state;
  const [chosen, setChosen] = useState<string | null>(null);
  const sweepable = edits.filter(hasStrength);
  const swept = sweepable.find((one) => editKey(one) === chosen) ?? sweepable[0];
  const edit = isEmptyPrompt(prompt) ? undefined : swept;
  const sweep = useSweep(run.name, request, edit);
  return (
    <>
      <PromptHead
        state={state}
        action="Measure"
        isDone={sweep.result !== null}
        onSubmit={draft.text === params.prompt ? sweep.measure : draft.commit}
        onStop={sweep.status === "working" ? sweep.stop : null}
      />
      {edit === undefined ? (
        <NoSweep state={state} />
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
          <SweepResult {...{ state, sweep, edit }} />
        </section>
      )}
    </>
  );
}
