/** Privacy: fine-tunes runs to be uncertain on chosen passages, with little loss increase elsewhere. */

import "@/components/prompt/prompt.css";
import "@/styles/content/evaluation.css";
import "./privacy.css";

import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "react-router";

import { privacyQuery } from "@/api/privacy";
import { routingOptionsQuery, runsQuery } from "@/api/queries";
import type { PrivacyResult, PrivacyFineTune, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { Remaining } from "@/components/ui/remaining";
import { EmptyState, ErrorState } from "@/components/ui/states";
import { currentParams, type SetParams, useUrlState, type Values } from "@/hooks/use-url-state";
import { formatFixed, formatSigned } from "@/lib/text/format";
import { LayerButtons } from "@/pages/prompt/routing/layer-buttons";

import { EXAMPLE_PASSAGES, isTooShort, MAX_PASSAGES, MIN_WORDS, splitPassages } from "./passages";
import { PRIVACY_PARAMS } from "./privacy-params";
import { ResultView } from "./result-view";
import { NOT_PROTECTED, THREAT_MODEL } from "./threat-model";
import { type Protection, useProtection } from "./use-protection";

type Params = Values<typeof PRIVACY_PARAMS>;
interface ParamProps {
  readonly params: Params;
  readonly setParams: SetParams<typeof PRIVACY_PARAMS>;
}

function Settings({ params, setParams }: ParamProps) {
  return (
    <div className="privacy-settings">
      <label>
        <Term id="passage_weight">Weight of the passages</Term>{" "}
        <NumberInput
          label="Weight of the passages"
          value={params.theta}
          digits={2}
          min={0.01}
          max={0.99}
          onCommit={(theta) => setParams({ theta })}
        />
      </label>
      <label>
        Steps{" "}
        <NumberInput
          label="Steps"
          value={params.steps}
          digits={0}
          min={1}
          max={200}
          onCommit={(steps) => setParams({ steps: Math.round(steps) })}
        />
      </label>
      <label>
        Loss increase at most{" "}
        <NumberInput
          label="Maximum loss increase on the retain set, nats per token"
          value={params.max_added_loss}
          digits={2}
          min={0}
          max={20}
          unit="nats"
          onCommit={(added) => setParams({ max_added_loss: added })}
        />
      </label>
      <label>
        <input
          type="checkbox"
          checked={params.store}
          onChange={(event) => setParams({ store: event.currentTarget.checked })}
        />
        Store the passages
      </label>
    </div>
  );
}

/** Every second step also measures, and takes longer. */
const MIN_STEPS = 2;

function ProgressLine({ work }: { readonly work: Protection }) {
  if (work.status === "idle") return null;
  if (work.status === "stopped") return <p className="privacy-progress dim">Cancelled. Nothing was saved.</p>;
  if (work.status === "failed") {
    return (
      <p className="privacy-progress bad" role="alert">
        {work.failure}
      </p>
    );
  }
  const { progress } = work;
  const isMeasuring = progress !== null && progress.step >= progress.total;
  return (
    <p className="privacy-progress" role="status">
      <label>
        {progress === null ? "Starting" : isMeasuring ? "Evaluating" : `Step ${progress.step} of ${progress.total}`}{" "}
        <progress value={progress === null ? 0 : progress.step / progress.total} />
      </label>
      {progress !== null && (
        <span className="dim">
          <Term id="confidence_distance">confidence distance</Term> {formatFixed(progress.confidence_distance, 3)} (0 is
          complete uncertainty), {formatSigned(progress.loss_increase, 3)} nats on the validation part
          <Remaining done={progress.step} total={progress.total} every={MIN_STEPS} />. Leaving this page cancels the
          fine-tuning.
        </span>
      )}
    </p>
  );
}

/** Name of a result in the list of results. */
const resultName = (result: PrivacyResult) => `${result.runs.join(" + ")}, weight ${result.theta}`;

interface ResultChoiceProps {
  readonly results: readonly PrivacyFineTune[];
  readonly shown: PrivacyFineTune;
  readonly onChoose: (name: string) => void;
}

function ResultChoice({ results, shown, onChoose }: ResultChoiceProps) {
  if (results.length < 2) return null;
  return (
    <div className="privacy-results" role="group" aria-label="Privacy fine-tunes">
      {results.map((fineTune) => (
        <Button
          key={fineTune.result.runs[0]}
          size="small"
          variant={fineTune === shown ? "chosen" : "plain"}
          aria-pressed={fineTune === shown}
          onClick={() => onChoose(fineTune.result.runs[0] ?? "")}
        >
          {resultName(fineTune.result)}
        </Button>
      ))}
    </div>
  );
}

/** Links to other runs that have a result. */
function OtherResults({ run }: { readonly run: string }) {
  const { runs } = useCurrentRun();
  const results = useQueries({ queries: runs.map(({ name }) => privacyQuery(name)) });
  const others = runs.filter(({ name }, i) => name !== run && (results[i]?.data?.protected.length ?? 0) > 0);
  if (others.length === 0) return null;
  return (
    <p>
      Finished results:{" "}
      {others.map(({ name }, i) => (
        <span key={name}>
          {i > 0 && ", "}
          <Link className="link mono" to={pageLinks(name).page("privacy")}>
            {name}
          </Link>
        </span>
      ))}
    </p>
  );
}

interface ResultsProps extends ParamProps {
  readonly run: RunSummary;
  readonly passages: readonly string[];
  readonly isWorking: boolean;
  readonly onPassages: (text: string) => void;
}

function Results({ run, passages, isWorking, params, setParams, onPassages }: ResultsProps) {
  const { data, error, refetch } = useQuery(privacyQuery(run.name));
  const { isPending: isChoosing } = useQuery(routingOptionsQuery(run.name));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  // The layer buttons are above, so nothing is shown before them.
  if (data === undefined || isChoosing) return null;
  const shown = data.protected.find(({ result }) => result.runs[0] === params.result) ?? data.protected[0];
  if (shown === undefined) {
    if (isWorking) return null;
    return (
      <EmptyState title="Type passages on which the model should be uncertain">
        <p>
          Type, for example, an address or a licence key that the model should not complete. Fine-tuning changes the
          gate and the output scaling of the run. It pushes the model’s next-token predictions on the passages towards
          uniform. The loss on other text, the <Term id="retain_set">retain set</Term>, rises by at most the limit
          above, as far as its validation part shows. The page then shows both models’ predictions token by token.
        </p>
        <p>{THREAT_MODEL}</p>
        <p>{NOT_PROTECTED}</p>
        <OtherResults run={run.name} />
      </EmptyState>
    );
  }
  return (
    <>
      <ResultChoice results={data.protected} shown={shown} onChoose={(result) => setParams({ result }, "push")} />
      <ResultView
        shown={shown}
        passages={passages}
        by={params.by}
        onBy={(by) => setParams({ by })}
        onPassages={onPassages}
      />
    </>
  );
}

/** The pattern `{run}-private`, numbered if a run of that name exists. */
function useUnusedName(names: readonly string[]): string {
  const { data } = useQuery(runsQuery);
  return useMemo(() => {
    const usedNames = new Set(data?.runs.map(({ name }) => name));
    const isUnused = (suffix: string) => names.every((name) => !usedNames.has(name + suffix));
    for (let number = 1; ; number++) {
      const suffix = number === 1 ? "-private" : `-private-${number}`;
      if (isUnused(suffix)) return `{run}${suffix}`;
    }
  }, [data, names]);
}

interface StartNoteProps extends Pick<ResultsProps, "run" | "passages"> {
  /** Name pattern of the new runs. */
  readonly name: string;
}

/** What starting does and how long it takes, or why it is not possible. */
function StartNote({ run, passages, name }: StartNoteProps) {
  const short = passages.find(isTooShort);
  if (short !== undefined || passages.length > MAX_PASSAGES) {
    return (
      <p className="bad">
        {short === undefined
          ? `At most ${MAX_PASSAGES} passages are supported here; mxd protect accepts more.`
          : `“${short}” is too short: a passage needs ${MIN_WORDS} words, digits or symbols, because its first 4 tokens are not fine-tuned.`}
      </p>
    );
  }
  return (
    <p className="dim">
      Pushes the model’s predictions on the passages towards uniform, and saves the result as the new run{" "}
      {name.replace("{run}", run.name)}; {run.name} is not changed. The step with the lowest confidence on the passages
      is kept, among those within the limit. Stored passages are shown to everybody who opens the result. Four short
      passages and 10 steps take about 4 minutes of CPU time with SmolLM2-135M.
      {run.indexed_tokens === null &&
        " The retain set is taken from this run’s index, and this run is not indexed. The command mxd protect accepts any dataset."}
    </p>
  );
}

function Privacy({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(PRIVACY_PARAMS);
  const [text, setText] = useState("");
  const passages = useMemo(() => splitPassages(text), [text]);
  const others = useMemo(() => params.layers ?? [], [params.layers]);
  const runs = useMemo(() => [run.name, ...others], [run.name, others]);
  const name = useUnusedName(runs);
  const work = useProtection(({ result }) => setParams({ result: result.runs[0] ?? null }, "push"));
  const isWorking = work.status === "working";
  const canStart = !isWorking && passages.length > 0 && passages.length <= MAX_PASSAGES && !passages.some(isTooShort);
  const start = () => {
    if (!canStart) return;
    const { theta, steps, max_added_loss, store: store_passages } = currentParams(PRIVACY_PARAMS);
    const texts = passages.map((text) => ({ text }));
    work.start({ runs, name, theta, steps, max_added_loss, store_passages, passages: texts });
  };
  return (
    <>
      <section className="prompt-row">
        <PromptBox
          label="Passages"
          placeholder="Passages, separated by blank lines"
          value={text}
          onChange={setText}
          onSubmit={start}
        />
        <div className="prompt-actions">
          <Button onClick={() => setText(EXAMPLE_PASSAGES.join("\n\n"))}>Example passages</Button>
          {isWorking ? (
            <Button icon="stop" onClick={work.stop}>
              Stop
            </Button>
          ) : (
            <Button variant="primary" disabled={!canStart} onClick={start}>
              Fine-tune<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
            </Button>
          )}
        </div>
      </section>
      <div className="privacy-page">
        <div className="privacy-choices">
          <LayerButtons
            run={run}
            chosen={others}
            onChoose={(names) => setParams({ layers: names }, "push")}
            caption="Also fine-tune:"
          />
          <Settings params={params} setParams={setParams} />
        </div>
        {text.trim() !== "" && <StartNote run={run} passages={passages} name={name} />}
        <ProgressLine work={work} />
        <Results {...{ run, passages, isWorking, params, setParams }} onPassages={setText} />
      </div>
    </>
  );
}

export default function PrivacyPage() {
  return (
    <>
      <title>Privacy · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Privacy" }]} />
      <WithRun>{(run) => <Privacy key={run.name} run={run} />}</WithRun>
    </>
  );
}
