/** Two texts: which experts tell them apart. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { startTransition, useEffect, useLayoutEffect, useRef, useState } from "react";
import { FileTrigger } from "react-aria-components";

import { streamContrast } from "@/api/http";
import { kindsQuery } from "@/api/queries";
import type { ContrastDoneEvent, StepEvent, ContrastRequest, ContrastResult, RunSummary } from "@/api/types";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { Term } from "@/components/terms/term";
import { Button, TriggerButton } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { Remaining } from "@/components/ui/remaining";
import { EmptyState, ErrorState, Failure, LoadingState } from "@/components/ui/states";
import { type StreamedWork, useStreamedWork } from "@/hooks/use-streamed-work";
import { useControlKey } from "@/hooks/use-shortcut";
import { currentParams, type UrlState, useUrlState } from "@/hooks/use-url-state";
import { formatCount, formatDuration, formatPlural } from "@/lib/text/format";

import {
  chosenKinds,
  CONTRAST_PARAMS,
  MAX_EXPERTS,
  MAX_TOKENS,
  OWN_TEXT,
  type Side,
  splitDocuments,
  textOfFile,
} from "./contrast-values";
import { ResultView } from "./contrast-result";

interface ContrastWork extends StreamedWork<ContrastRequest, StepEvent> {
  readonly result: ContrastResult | null;
}

type ContrastState = UrlState<typeof CONTRAST_PARAMS>;
/** The choice of texts, as in the URL: the Back button finds its result again. */
type ContrastChoice = Pick<ContrastState["params"], "a" | "b" | "tokens">;

const resultKey = (run: string, { a, b, tokens }: ContrastChoice) => ["run", run, "contrast", a, b, tokens];

/** Runs one contrast at a time. Its result stays until the next one starts, and for a while after leaving the page. */
function useContrast(run: string, choice: ContrastChoice): ContrastWork {
  const queries = useQueryClient();
  const [result, setResult] = useState(() => queries.getQueryData<ContrastResult>(resultKey(run, choice)) ?? null);
  const work = useStreamedWork<ContrastRequest, StepEvent, ContrastDoneEvent>(
    (request, signal) => streamContrast(run, request, signal),
    (done, { tokens = choice.tokens }) => {
      queries.setQueryData(resultKey(run, { ...choice, tokens }), done.result);
      setResult(done.result);
    },
  );
  const start = (request: ContrastRequest) => {
    setResult(null);
    work.start(request);
  };
  return { ...work, start, result };
}

/** Ctrl or ⌘ with Enter submits the form, unless a menu is open. */
function useSubmitKey(submit: () => void): void {
  const [presses, setPresses] = useState(0);
  const latest = useRef(submit);
  useLayoutEffect(() => {
    latest.current = submit;
  });
  useControlKey("enter", () => {
    if (document.querySelector(".overlay, .popover") !== null) return;
    // A transition, as changes of the URL are: a number that this key press commits is rendered first.
    startTransition(() => setPresses((count) => count + 1));
  });
  useEffect(() => {
    if (presses > 0) latest.current();
  }, [presses]);
}

interface TextProps {
  readonly side: Side;
  readonly choice: ReturnType<typeof useTexts>;
}

function OpenFile({ side, choice }: TextProps) {
  const { mutate, isPending, error } = useMutation({
    mutationFn: async (file: File) => textOfFile(file.name, await file.text()),
    onSuccess: (text) => choice.setText(side, text),
  });
  const choose = (files: FileList | null) => {
    const file = files?.item(0);
    if (file != null) mutate(file);
  };
  return (
    <>
      <FileTrigger acceptedFileTypes={["text/plain", ".txt", ".jsonl"]} onSelect={choose}>
        <TriggerButton className="btn" isDisabled={isPending} aria-label={`Open file as text ${NAMES[side]}`}>
          Open file
        </TriggerButton>
      </FileTrigger>
      <Failure error={error} />
    </>
  );
}

/** A kind of the indexed text, or own documents. */
function Source({ side, choice: { kinds, chosen, setKind } }: TextProps) {
  if (kinds?.length === 0) return null;
  return (
    <label>
      <b>{NAMES[side]}</b>{" "}
      <select
        aria-label={`Source of text ${NAMES[side]}`}
        value={chosen[side]}
        onChange={(event) => setKind(side, event.target.value)}
      >
        <option value={OWN_TEXT}>Own text</option>
        <optgroup label="Kinds of the indexed text">
          {kinds?.map((each) => (
            <option key={each.kind} value={each.kind}>
              {each.kind} ({formatPlural(each.documents, "document")})
            </option>
          ))}
        </optgroup>
      </select>
    </label>
  );
}

/** Documents that are pasted or read from a file. */
function OwnText({ side, choice, onSubmit }: TextProps & { readonly onSubmit: () => void }) {
  const { query, texts, setText } = choice;
  const { min_documents: least = 0 } = query.data ?? {};
  const text = texts[side];
  const numDocuments = splitDocuments(text).length;
  return (
    <section className="stack" aria-label={`Text ${NAMES[side]}`}>
      <div className="row wrap contrast-bar">
        <b>Text {NAMES[side]}</b>
        {numDocuments > 0 && <span>{formatPlural(numDocuments, "document")}</span>}
        <span className={numDocuments > 0 && numDocuments < least ? "bad" : "dim"}>
          at least {least}, separated by blank lines
        </span>
        <span className="grow" />
        <OpenFile side={side} choice={choice} />
      </div>
      <PromptBox
        label={`Documents of text ${NAMES[side]}`}
        placeholder="One document, a blank line, the next document …"
        draft={{ text, setText: (next) => setText(side, next), commit: onSubmit }}
        onOpen="leave-focus"
      />
    </section>
  );
}

/** Measured: two texts of this many tokens took this long with the demo's language model. */
const TIMED_TOKENS = 8192;
const TIMED_SECONDS = 17;
const durationOf = (tokens: number) => formatDuration((tokens / TIMED_TOKENS) * TIMED_SECONDS);

function Progress({ progress }: Pick<ContrastWork, "progress">) {
  return (
    <>
      <p role="status">
        <label>
          {progress === null ? (
            "Starting; the language model is loaded on first use"
          ) : progress.done < progress.total ? (
            <>
              {formatCount(progress.done)} of {formatCount(progress.total)} tokens
              <Remaining done={progress.done} total={progress.total} every={1} />
            </>
          ) : (
            "All tokens are done; testing the experts"
          )}{" "}
          <progress value={progress === null ? 0 : progress.done / progress.total} />
        </label>
      </p>
      <LoadingState label="Comparing" rows={10} rowHeight={31} />
    </>
  );
}

/** Enough to see what a result looks like. */
const EXAMPLE_TOKENS = 8192;

/** What there is before a result. */
function NoResult({ work, onTry }: { readonly work: ContrastWork; readonly onTry: (() => void) | null }) {
  if (work.status === "working") return <Progress progress={work.progress} />;
  return (
    <>
      {work.status === "stopped" && <p className="dim">Cancelled.</p>}
      {work.failure !== null && (
        <p className="bad" role="alert">
          {work.failure}
        </p>
      )}
      <EmptyState title="Experts that are active more often in one text than in another">
        Choose two kinds of the indexed text, or own texts of several documents each. Both are run through the model.
        Each expert’s <Term id="density">activation density</Term> in A is divided by that in B, with half an active
        token added to both. Every ratio has a <Term id="interval">95 % interval</Term>, computed over documents.{" "}
        <Term id="q_value">q-values</Term> correct for the number of experts. As a control, the documents are assigned
        to the two texts at random. Nothing is stored on the server.
        {onTry !== null && (
          <p>
            <Button icon="play" onClick={onTry}>
              Try it with {formatCount(EXAMPLE_TOKENS)} tokens of each, about {durationOf(EXAMPLE_TOKENS)}
            </Button>
          </p>
        )}
      </EmptyState>
    </>
  );
}

interface StartBarProps extends ContrastState {
  readonly work: ContrastWork;
  readonly canStart: boolean;
  readonly onStart: () => void;
}

function StartBar({ work, params: { tokens }, setParams, canStart, onStart }: StartBarProps) {
  return (
    <>
      <label>
        Tokens per text{" "}
        <NumberInput
          label="Tokens per text"
          value={tokens}
          digits={0}
          min={100}
          max={MAX_TOKENS}
          onCommit={(value) => setParams({ tokens: Math.round(value) })}
        />
      </label>
      {work.status === "working" ? (
        <Button icon="stop" onClick={work.stop}>
          Stop
        </Button>
      ) : (
        <>
          <Button variant="primary" disabled={!canStart} onClick={onStart}>
            Compare<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
          <span className="dim" title="For SmolLM2-135M on two idle CPU cores">
            about {durationOf(tokens)} for {formatCount(2 * tokens)} tokens of random documents
          </span>
        </>
      )}
    </>
  );
}

const SIDES = ["a", "b"] as const;
const NAMES = { a: "A", b: "B" } as const;

/** Both texts: kinds of the indexed text, which are undefined while they load, or own documents. */
function useTexts(run: string, { params, setParams }: ContrastState) {
  const [texts, setTexts] = useState({ a: "", b: "" });
  const query = useQuery(kindsQuery(run));
  const kinds = query.error === null ? query.data?.kinds : [];
  const names = kinds?.map(({ kind }) => kind);
  const chosen = chosenKinds(params.a, params.b, names);
  const asked = (side: Side) => {
    const kind = chosen[side];
    return kind === OWN_TEXT ? { documents: [...splitDocuments(texts[side])] } : { documents: [], kind };
  };
  const setText = (side: Side, text: string) => setTexts((current) => ({ ...current, [side]: text }));
  const setKind = (side: Side, kind: string) => setParams({ ...chosen, [side]: kind }, "push");
  const isGiven = SIDES.every((side) => chosen[side] !== OWN_TEXT || texts[side].trim() !== "");
  // While the kinds load, one of them will probably be chosen.
  const owned = SIDES.filter((side) => kinds !== undefined && chosen[side] === OWN_TEXT);
  return { query, kinds, owned, chosen, setKind, asked, texts, setText, isGiven };
}

export function Contrast({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(CONTRAST_PARAMS);
  const choice = useTexts(run.name, { params, setParams });
  const { query, owned, chosen, asked, isGiven } = choice;
  const work = useContrast(run.name, params);
  const isSame = chosen.a !== OWN_TEXT && chosen.a === chosen.b;
  const canStart = work.status !== "working" && isGiven && !isSame;
  const start = (tokens = currentParams(CONTRAST_PARAMS).tokens) => {
    if (!canStart) return;
    setParams({ tokens });
    work.start({ a: asked("a"), b: asked("b"), tokens, limit: MAX_EXPERTS });
  };
  useSubmitKey(() => start());
  return (
    <div className="stack contrast-page" aria-busy={work.status === "working"}>
      <div className="row wrap contrast-bar">
        {SIDES.map((side) => (
          <Source key={side} side={side} choice={choice} />
        ))}
        <StartBar {...{ work, params, setParams, canStart }} onStart={() => start()} />
        {isSame && <span className="bad">Choose two different kinds.</span>}
      </div>
      {owned.length > 0 && (
        <div className="contrast-texts">
          {owned.map((side) => (
            <OwnText key={side} side={side} choice={choice} onSubmit={() => start()} />
          ))}
        </div>
      )}
      {query.error !== null && <ErrorState error={query.error} onRetry={() => void query.refetch()} />}
      {work.result === null ? (
        <NoResult work={work} onTry={canStart ? () => start(EXAMPLE_TOKENS) : null} />
      ) : (
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
