/** Privacy: passages on which the language model shall be unsure, and what that costs elsewhere. */

import "@/components/prompt/prompt.css";
import "./privacy.css";

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";

import { privacyQuery } from "@/api/privacy";
import { runsQuery } from "@/api/queries";
import type { PrivacyResult, ProtectedRuns, RunSummary } from "@/api/types";
import { Button } from "@/components/button";
import { WithRun } from "@/components/current-run";
import { NumberInput } from "@/components/number-input";
import { FromContext } from "@/components/prompt/from-context";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState, ErrorState } from "@/components/states";
import { formatFixed, formatSigned } from "@/lib/format";
import { type SetParams, useUrlState, type Values } from "@/url-state";

import { MOST_PASSAGES, passageOf, passagesOf, withPassage } from "./privacy/passages";
import { PRIVACY_PARAMS } from "./privacy/privacy-params";
import { ResultView } from "./privacy/result-view";
import { type Protection, useProtection } from "./privacy/use-protection";
import { LayersChoice } from "./routing/other-layers";

type Params = Values<typeof PRIVACY_PARAMS>;
interface ParamProps {
  readonly params: Params;
  readonly setParams: SetParams<typeof PRIVACY_PARAMS>;
}

function Settings({ params, setParams }: ParamProps) {
  return (
    <div className="privacy-settings">
      <label title="Weight of being unsure on the passages; the rest is that of the loss on other text">
        θ{" "}
        <NumberInput
          label="Theta"
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
      <label title="Of the steps that stay below it, the one that is least sure on the passages is kept">
        Other text may lose{" "}
        <NumberInput
          label="Nats that other text may lose"
          value={params.added}
          digits={2}
          min={0}
          max={20}
          unit="nats"
          onCommit={(added) => setParams({ added })}
        />
      </label>
    </div>
  );
}

function Working({ work }: { readonly work: Protection }) {
  if (work.status === "idle") return null;
  if (work.status === "stopped") return <p className="privacy-work dim">Stopped; nothing was written.</p>;
  if (work.status === "failed") {
    return (
      <p className="privacy-work bad" role="alert">
        {work.failure}
      </p>
    );
  }
  const { progress } = work;
  const isMeasuring = progress !== null && progress.step >= progress.of;
  return (
    <p className="privacy-work" role="status">
      <label>
        {progress === null ? "Beginning" : isMeasuring ? "Measuring" : `Step ${progress.step} of ${progress.of}`}{" "}
        <progress value={progress === null ? 0 : progress.step / progress.of} />
      </label>
      {progress !== null && (
        <span className="dim">
          confidence distance {formatFixed(progress.confidence_distance, 3)}, {formatSigned(progress.added, 3)} nats
          elsewhere
        </span>
      )}
    </p>
  );
}

/** What a result is called where one of several is chosen. */
const nameOf = (result: PrivacyResult) => `${result.runs.join(" + ")}, θ ${result.theta}`;

interface EarlierProps {
  readonly found: readonly ProtectedRuns[];
  readonly shown: ProtectedRuns;
  readonly onChoose: (name: string) => void;
}

function Earlier({ found, shown, onChoose }: EarlierProps) {
  if (found.length < 2) return null;
  return (
    <div className="privacy-earlier" role="group" aria-label="Protected runs">
      {found.map((one) => (
        <Button
          key={one.result.runs[0]}
          size="small"
          variant={one === shown ? "chosen" : "plain"}
          aria-pressed={one === shown}
          onClick={() => onChoose(one.result.runs[0] ?? "")}
        >
          {nameOf(one.result)}
        </Button>
      ))}
    </div>
  );
}

interface ResultsProps extends ParamProps {
  readonly run: RunSummary;
  readonly passages: readonly string[];
}

function Results({ run, passages, params, setParams }: ResultsProps) {
  const { data, error, refetch } = useQuery(privacyQuery(run.name));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return null;
  const shown = data.protected.find(({ result }) => result.runs[0] === params.result) ?? data.protected[0];
  if (shown === undefined) {
    return (
      <EmptyState title="Type passages on which the language model shall be unsure of every next token">
        C and the gate of this run are moved until predictions there are as near to uniform as other text allows. A new
        run is written; this one stays as it is.
      </EmptyState>
    );
  }
  return (
    <>
      <Earlier found={data.protected} shown={shown} onChoose={(result) => setParams({ result }, "push")} />
      <ResultView shown={shown} passages={passages} by={params.by} onBy={(by) => setParams({ by })} />
    </>
  );
}

/** `{run}-private`, with a number where there are such runs already. */
function useFreeName(names: readonly string[]): string {
  const { data } = useQuery(runsQuery);
  return useMemo(() => {
    const taken = new Set(data?.runs.map(({ name }) => name));
    const isFree = (ending: string) => names.every((name) => !taken.has(name + ending));
    for (let number = 1; ; number++) {
      const ending = number === 1 ? "-private" : `-private-${number}`;
      if (isFree(ending)) return `{run}${ending}`;
    }
  }, [data, names]);
}

function Privacy({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(PRIVACY_PARAMS);
  const [text, setText] = useState("");
  const passages = useMemo(() => passagesOf(text), [text]);
  const others = useMemo(() => params.layers ?? [], [params.layers]);
  const runs = useMemo(() => [run.name, ...others], [run.name, others]);
  const name = useFreeName(runs);
  const work = useProtection(({ result }) => setParams({ result: result.runs[0] ?? null }, "push"));
  const isWorking = work.status === "working";
  const canStart = !isWorking && passages.length > 0 && passages.length <= MOST_PASSAGES;
  const start = () => {
    if (!canStart) return;
    const { theta, steps, added } = params;
    work.start({ runs, name, theta, steps, most_added: added, passages: passages.map((one) => ({ text: one })) });
  };
  return (
    <>
      <section className="prompt-row">
        <PromptBox
          label="Passages"
          placeholder="Type or paste passages, a blank line between two"
          value={text}
          onChange={setText}
          onSubmit={start}
        />
        <div className="prompt-actions">
          {run.indexed_tokens !== null && (
            <FromContext run={run.name} onChoose={(it) => setText(withPassage(text, passageOf(it)))} />
          )}
          {isWorking ? (
            <Button icon="stop" onClick={work.stop}>
              Stop
            </Button>
          ) : (
            <Button variant="primary" disabled={!canStart} onClick={start}>
              Protect<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
            </Button>
          )}
        </div>
      </section>
      <div className="privacy-page">
        <div className="privacy-choices">
          <LayersChoice run={run} chosen={others} onChoose={(names) => setParams({ layers: names }, "push")} />
          <Settings params={params} setParams={setParams} />
        </div>
        {run.indexed_tokens === null && (
          <p className="dim">
            Other text is taken from this run&rsquo;s index, and it has none; mxd protect takes any text.
          </p>
        )}
        {passages.length > MOST_PASSAGES && (
          <p className="bad">At most {MOST_PASSAGES} passages here; mxd protect takes more.</p>
        )}
        <Working work={work} />
        <Results run={run} passages={passages} params={params} setParams={setParams} />
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
