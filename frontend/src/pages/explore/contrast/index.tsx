/** Contrast: which experts tell two texts apart. */

import "@/components/prompt/prompt.css";
import "./contrast.css";

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { kindsQuery } from "@/api/contrast";
import type { RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { WithRun } from "@/components/runs/current-run";
import { Term } from "@/components/terms/term";
import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { Remaining } from "@/components/ui/remaining";
import { EmptyState, ErrorState } from "@/components/ui/states";
import { currentParams, useUrlState } from "@/hooks/use-url-state";
import { formatCount, formatDuration } from "@/lib/text/format";

import { chosenKinds, CONTRAST_PARAMS, MAX_EXPERTS, MAX_TOKENS, OWN_TEXT } from "./contrast-params";
import { splitDocuments } from "./documents";
import type { Side } from "./ratio-text";
import { ResultView } from "./result-view";
import { TextChoice } from "./text-choice";
import { type ContrastWork, useContrast } from "./use-contrast";
import { useSubmitKey } from "./use-submit-key";

/** Measured: two texts of this many tokens took this long with the demo's language model. */
const TIMED_TOKENS = 8192;
const TIMED_SECONDS = 40;

function ProgressLine({ work }: { readonly work: ContrastWork }) {
  if (work.status === "stopped") return <p className="dim">Cancelled.</p>;
  if (work.status === "failed") {
    return (
      <p className="bad" role="alert">
        {work.failure}
      </p>
    );
  }
  if (work.status !== "working") return null;
  const { progress } = work;
  return (
    <p role="status">
      <label>
        {progress === null ? (
          "Starting; the language model is loaded on first use"
        ) : progress.tokens < progress.total ? (
          <>
            {formatCount(progress.tokens)} of {formatCount(progress.total)} tokens
            <Remaining done={progress.tokens} total={progress.total} every={1} />
          </>
        ) : (
          "All tokens are done; testing the experts"
        )}{" "}
        <progress value={progress === null ? 0 : progress.tokens / progress.total} />
      </label>
    </p>
  );
}

function Explanation() {
  return (
    <EmptyState title="Experts that are active more often in one text than in another">
      Choose two kinds of the indexed text, or your own texts. Both are run through the model. Each expert’s{" "}
      <Term id="density">activation density</Term> in A is divided by that in B. Every ratio has a{" "}
      <Term id="interval">95 % interval</Term>, computed over documents. <Term id="q_value">q-values</Term> correct for
      the number of experts. As a control, the documents are assigned to the two texts at random. Nothing is stored on
      the server.
    </EmptyState>
  );
}

interface StartBarProps {
  readonly work: ContrastWork;
  readonly tokens: number;
  readonly onTokens: (tokens: number) => void;
  readonly problem: string | null;
  readonly canStart: boolean;
  readonly onStart: () => void;
}

function StartBar({ work, tokens, onTokens, problem, canStart, onStart }: StartBarProps) {
  return (
    <div className="contrast-bar">
      <label>
        Tokens per text{" "}
        <NumberInput
          label="Tokens per text"
          value={tokens}
          digits={0}
          min={100}
          max={MAX_TOKENS}
          onCommit={(value) => onTokens(Math.round(value))}
        />
      </label>
      {work.status === "working" ? (
        <Button icon="stop" onClick={work.stop}>
          Stop
        </Button>
      ) : (
        <Button variant="primary" disabled={!canStart} onClick={onStart}>
          Compare<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
        </Button>
      )}
      {work.status !== "working" && (
        <span className="dim">
          Runs up to {formatCount(2 * tokens)} tokens of random documents through the model: about{" "}
          {formatDuration((tokens / TIMED_TOKENS) * TIMED_SECONDS)} for SmolLM2-135M on two idle CPU cores
        </span>
      )}
      {problem !== null && <span className="bad">{problem}</span>}
    </div>
  );
}

function Contrast({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(CONTRAST_PARAMS);
  const [texts, setTexts] = useState({ a: "", b: "" });
  const { data, error, refetch } = useQuery(kindsQuery(run.name));
  const work = useContrast(run.name, params);
  const kinds = error === null ? data?.kinds : [];
  const names = kinds?.map(({ kind }) => kind);
  const chosen = chosenKinds(params.a, params.b, names);
  const choice = (side: Side) => {
    const kind = chosen[side];
    return kind === OWN_TEXT ? { documents: [...splitDocuments(texts[side])] } : { documents: [], kind };
  };
  const isGiven = (side: Side) => chosen[side] !== OWN_TEXT || texts[side].trim() !== "";
  const isSame = chosen.a !== OWN_TEXT && chosen.a === chosen.b;
  const canStart = work.status !== "working" && isGiven("a") && isGiven("b") && !isSame;
  const start = () => {
    if (!canStart) return;
    const { tokens } = currentParams(CONTRAST_PARAMS);
    work.start({ a: choice("a"), b: choice("b"), tokens, limit: MAX_EXPERTS });
  };
  useSubmitKey(start);
  return (
    <div className="contrast-page" aria-busy={work.status === "working"}>
      <div className="contrast-texts">
        {(["a", "b"] as const).map((side) => (
          <TextChoice
            key={side}
            side={side === "a" ? "A" : "B"}
            kinds={kinds}
            kind={chosen[side]}
            text={texts[side]}
            onKind={(kind) => setParams({ ...chosen, [side]: kind }, "push")}
            onText={(text) => setTexts((current) => ({ ...current, [side]: text }))}
            onSubmit={start}
          />
        ))}
      </div>
      <StartBar
        work={work}
        tokens={params.tokens}
        onTokens={(tokens) => setParams({ tokens })}
        problem={isSame ? "Choose two different kinds." : null}
        canStart={canStart}
        onStart={start}
      />
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      <ProgressLine work={work} />
      {work.result === null && <Explanation />}
      {work.result !== null && (
        <ResultView
          result={work.result}
          numExperts={run.num_experts}
          side={params.more_in}
          onSide={(more_in) => setParams({ more_in }, "push")}
        />
      )}
    </div>
  );
}

export default function ContrastPage() {
  return (
    <>
      <title>Contrast · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Contrast" }]} />
      <WithRun>{(run) => <Contrast key={run.name} run={run} />}</WithRun>
    </>
  );
}
