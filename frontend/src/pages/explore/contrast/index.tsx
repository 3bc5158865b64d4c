/** Contrast: which experts tell two texts apart. */

import "@/components/prompt/prompt.css";
import "./contrast.css";

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { kindsQuery } from "@/api/contrast";
import type { RunSummary, TextKind } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { WithRun } from "@/components/runs/current-run";
import { Term } from "@/components/terms/term";
import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { EmptyState, ErrorState } from "@/components/ui/states";
import { useUrlState } from "@/hooks/use-url-state";
import { formatCount } from "@/lib/text/format";

import { CONTRAST_PARAMS, MAX_TOKENS } from "./contrast-params";
import { splitDocuments } from "./documents";
import { ResultView } from "./result-view";
import { TextChoice } from "./text-choice";
import { type ContrastWork, useContrast } from "./use-contrast";

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
        {progress === null
          ? "Starting; the language model is loaded on first use"
          : `${formatCount(progress.tokens)} of ${formatCount(progress.total)} tokens`}{" "}
        <progress value={progress === null ? 0 : progress.tokens / progress.total} />
      </label>
    </p>
  );
}

const MAX_PAIRS = 3;

interface ExplanationProps {
  readonly kinds: readonly TextKind[];
  readonly onPair: (a: string, b: string) => void;
}

function Explanation({ kinds, onPair }: ExplanationProps) {
  const names = kinds.map(({ kind }) => kind).slice(0, 2 * MAX_PAIRS);
  const pairs = names.flatMap((a, i) => (i % 2 === 0 && names[i + 1] !== undefined ? [[a, names[i + 1] ?? ""]] : []));
  return (
    <EmptyState title="Experts that are active more often in one text than in another">
      Choose two kinds of the indexed text, or paste two texts with a blank line between documents. Each expert’s{" "}
      <Term id="density">activation density</Term> in A is divided by that in B. Every ratio has a{" "}
      <Term id="interval">95 % interval</Term>, computed over documents. <Term id="q_value">q-values</Term> correct for
      the number of experts.
      {pairs.length > 0 && (
        <p className="contrast-pairs">
          For example:{" "}
          {pairs.map(([a = "", b = ""]) => (
            <Button key={a} size="small" onClick={() => onPair(a, b)}>
              {a} and {b}
            </Button>
          ))}
        </p>
      )}
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
      {problem !== null && <span className="bad">{problem}</span>}
    </div>
  );
}

function Contrast({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(CONTRAST_PARAMS);
  const [texts, setTexts] = useState({ a: "", b: "" });
  const { data, error, refetch } = useQuery(kindsQuery(run.name));
  const work = useContrast(run.name);
  const choice = (side: "a" | "b") => {
    const kind = params[side];
    return kind === null ? { documents: [...splitDocuments(texts[side])] } : { documents: [], kind };
  };
  const isGiven = (side: "a" | "b") => params[side] !== null || texts[side].trim() !== "";
  const isSame = params.a !== null && params.a === params.b;
  const canStart = work.status !== "working" && isGiven("a") && isGiven("b") && !isSame;
  const start = () => {
    if (canStart) work.start({ a: choice("a"), b: choice("b"), tokens: params.tokens });
  };
  const startPair = (a: string, b: string) => {
    setParams({ a, b }, "push");
    work.start({ a: { documents: [], kind: a }, b: { documents: [], kind: b }, tokens: params.tokens });
  };
  return (
    <div className="contrast-page" aria-busy={work.status === "working"}>
      <div className="contrast-texts">
        {(["a", "b"] as const).map((side) => (
          <TextChoice
            key={side}
            side={side === "a" ? "A" : "B"}
            kinds={error === null ? data?.kinds : []}
            kind={params[side]}
            text={texts[side]}
            onKind={(kind) => setParams({ [side]: kind }, "push")}
            onText={(text) => setTexts((current) => ({ ...current, [side]: text }))}
            onSubmit={start}
          />
        ))}
      </div>
      <StartBar
        work={work}
        tokens={params.tokens}
        onTokens={(tokens) => setParams({ tokens })}
        problem={isSame ? "Choose two different texts." : null}
        canStart={canStart}
        onStart={start}
      />
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      <ProgressLine work={work} />
      {work.result === null && work.status === "idle" && <Explanation kinds={data?.kinds ?? []} onPair={startPair} />}
      {work.result !== null && (
        <ResultView result={work.result} side={params.more_in} onSide={(more_in) => setParams({ more_in }, "push")} />
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
