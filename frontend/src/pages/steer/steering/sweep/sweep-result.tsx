/** The texts of a strength sweep, with the strength to use. */

import { useState } from "react";
import { Link } from "react-router";

import type { ConceptScore, SteeringRequest, StrengthSweepDoneEvent, StrengthSweepProgressEvent } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { LinkButton } from "@/components/ui/button";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { describeEdit, type Edit, type StrengthEdit } from "@/lib/edits/edits";
import { formatFixed } from "@/lib/text/format";
import { toOneLine } from "@/lib/text/token-text";

import {
  describeSample,
  describeScore,
  describeSuggestion,
  formatShare,
  rowsSoFar,
  SWEEP_STRENGTHS,
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
  /** Whether any text has a promoted token. */
  readonly hasPromoted: boolean;
}

function SweepRow(props: RowProps) {
  const { row, isCurrent, isSuggested, largest, hasPromoted, shown, describe, onChoose } = props;
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
      <td data-name="Mean activation, % of p99">
        <ScoreBar score={row.activation} largest={largest.activation} shown={shown} />
      </td>
      {hasPromoted && (
        <td data-name="Promoted, %">
          <ScoreBar score={row.promoted} largest={largest.promoted} shown={shown} />
        </td>
      )}
      <td className="num" data-name={`KL, nats${ofSteered}`}>
        {row.kl === undefined ? "–" : formatFixed(row.kl)}
      </td>
      <td className="num" data-name={`Perplexity${ofSteered}`}>
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
  const hasPromoted = rows.some(({ promoted }) => promoted !== undefined && promoted.steered + promoted.control > 0);
  const ofSteered = props.shown === "control" && <small className="unit">of steered texts</small>;
  return (
    <table className="sweep-table">
      <thead>
        <tr>
          <th scope="col">Strength</th>
          <th scope="col">{props.shown === "steered" ? "Steered text" : "Control text"}</th>
          <th scope="col">
            <Term id="concept_activation">Mean activation</Term> <span className="unit">% of p99</span>
          </th>
          {hasPromoted && (
            <th scope="col">
              <Term id="promoted_share">Promoted</Term> <span className="unit">% of tokens</span>
            </th>
          )}
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
            hasPromoted={hasPromoted}
            isCurrent={row.strength === current}
            isSuggested={row.strength === suggested}
            {...props}
          />
        ))}
      </tbody>
    </table>
  );
}

const MAX_PROMOTED = 6;

interface SampleProps {
  readonly request: SteeringRequest;
  readonly done: StrengthSweepDoneEvent;
  readonly run: string;
  readonly shown: Shown;
}

/** What the figures are measured on and compared with. */
function Sample({ request, done, run, shown }: SampleProps) {
  return (
    <p className="sweep-sample dim">
      {describeSample(request)} The first text per strength is shown.{" "}
      {shown === "steered" && <>Texts that are no longer fluent are greyed. </>}
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

interface SweepResultProps {
  readonly result: StrengthSweepDoneEvent | null;
  readonly progress: StrengthSweepProgressEvent | null;
  /** The expert's run. */
  readonly run: string;
  readonly request: SteeringRequest;
  readonly edit: StrengthEdit;
  readonly onChange: (edit: Edit) => void;
  /** Address of the texts with the edit. */
  readonly textsUrl: (edit: Edit) => string;
}

/** The verdict once all texts are scored, and the texts by strength as they arrive. */
export function SweepResult({ result, progress, run, request, edit, onChange, textsUrl }: SweepResultProps) {
  const [shown, setShown] = useState<Shown>("steered");
  const describe = (strength: number) =>
    strength === 0 ? "0" : describeEdit({ mode: edit.mode, strength }).replace(/\.0$/, "");
  const suggested = result?.suggested ?? null;
  const used = suggested ?? edit.strength;
  const rows = result?.points ?? rowsSoFar(SWEEP_STRENGTHS[edit.mode], progress?.texts ?? []);
  return (
    <>
      <div className="sweep-verdict" role="status">
        <div>
          <h3>
            {result === null && "The suggestion follows once all texts are scored"}
            {result !== null &&
              (suggested === null
                ? "No suggestion"
                : describeSuggestion(
                    describe(suggested),
                    rows.find(({ strength }) => strength === suggested),
                  ))}
          </h3>
          {result !== null && suggested === null && <p>{result.verdict}</p>}
          <p className="dim">
            {suggested !== null && "Steered vs control. "}Click a strength to put it into the tray.
            {!rows.some(({ strength }) => strength === edit.strength) && ` The tray has ${describe(edit.strength)}.`}
          </p>
        </div>
        <SegmentedControl
          label="Texts to show"
          value={shown}
          onChange={setShown}
          segments={[
            { value: "steered", label: "Steered" },
            { value: "control", label: "Control" },
          ]}
        />
        <LinkButton
          variant={result === null ? "plain" : "primary"}
          icon="steering"
          to={textsUrl({ ...edit, strength: used })}
        >
          Steer with {describe(used)}
        </LinkButton>
      </div>
      <SweepTable
        rows={rows}
        suggested={suggested}
        current={edit.strength}
        shown={shown}
        describe={describe}
        onChoose={(strength) => onChange({ ...edit, strength })}
      />
      {result !== null && <Sample request={request} done={result} run={run} shown={shown} />}
    </>
  );
}
