/** Steering: edits on the left; on the right, the prompt continued without and with them. */

import "@/components/prompt/prompt.css";
import "./steering.css";
import "./dose/dose.css";
import "./edits/edits.css";
import "./find/find.css";
import "./inputs/settings.css";
import "./texts/streams.css";

import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef } from "react";

import { isEmptyPrompt, routingQuery } from "@/api/queries";
import type { RoutingResponse, RunSummary, SteeringRequest, Turn } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { useTurnsDraft } from "@/components/prompt/chat-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { haveDiverged, originalTurns } from "@/components/prompt/turns-param";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { effectiveK } from "@/components/runs/k-slider";
import { useTray } from "@/components/tray/tray-context";
import { useUrlState } from "@/hooks/use-url-state";
import { rememberPrompt } from "@/lib/browser/last-prompt";

import { DosePane } from "./dose/dose-pane";
import { EditList } from "./edits/edit-list";
import { useSharedEdits } from "./edits/use-shared-edits";
import { FindPane } from "./find/find-pane";
import { EmptyPrompt, PromptRow } from "./inputs/prompt-row";
import { GateSettings, PromptSettings, SamplingSettings, ScopeSettings } from "./inputs/settings";
import { CodeExport } from "./sharing/code-export";
import { OpenedSession, Sessions } from "./sharing/sessions";
import { paramsToPrompt, STEERING_PARAMS, type SteeringParams, steeringRequest } from "./steering-params";
import { Streams } from "./texts/streams";
import { withOriginal } from "./texts/generation";
import { type Generator, useGeneration } from "./texts/use-generation";

/** A chat as plain text, once it has been routed. */
function joinPrompt(routing: RoutingResponse | undefined): string {
  const tokens = routing?.tokens.filter((token) => !token.start) ?? [];
  return tokens.map((token) => token.text).join("");
}

/** The prompt as text, formatted by the chat template for a chat. Other pages continue with a chat's text. */
function usePromptText(
  { prompt, turns }: Pick<SteeringParams, "prompt" | "turns">,
  routed: RoutingResponse | undefined,
) {
  const isChat = turns.length > 0;
  const text = isChat ? joinPrompt(routed) : prompt;
  useEffect(() => {
    if (isChat && text !== "") rememberPrompt(text);
  }, [isChat, text]);
  return text;
}

/** The beginning of the reply that a chat prescribes. Its turns are in the prompt box, so the texts show the reply only. */
const replyStart = (turns: SteeringParams["turns"]): string => {
  const last = turns.at(-1);
  return last?.role === "assistant" ? last.text : "";
};

function sideBySide(steered: Generator, original: Generator): Generator {
  const stop = () => {
    steered.stop();
    original.stop();
  };
  return { ...steered, generation: withOriginal(steered.generation, original.generation), stop };
}

/** The page's state, and the generation that it starts. */
function useSteering(run: RunSummary) {
  const [urlParams, setParams] = useUrlState(STEERING_PARAMS);
  const params = useMemo(() => ({ ...urlParams, k: effectiveK(run, urlParams.k) }), [urlParams, run]);
  const { edits, replaceAll } = useSharedEdits();
  const steeredGenerator = useGeneration(run.name);
  const originalGenerator = useGeneration(run.name);
  // Selected tokens, lock and session belong to the old prompt.
  const resetSelection = { lock: null, at: [], session: "" };
  const draft = usePromptDraft(params.prompt, (prompt) => setParams({ prompt, ...resetSelection }, "push"), null);
  const turns = useTurnsDraft(params.turns, (next) => setParams({ turns: next, ...resetSelection }, "push"));
  const request = useMemo(() => steeringRequest(params, edits), [params, edits]);
  const key = JSON.stringify(request);
  // Once the chats have diverged, the original model answers its own history, in a generation without edits.
  const isDiverged = haveDiverged(params.turns);
  const generator = isDiverged ? sideBySide(steeredGenerator, originalGenerator) : steeredGenerator;
  const startSteered = steeredGenerator.start;
  const startOriginal = originalGenerator.start;
  // As text, because the turns are read again whenever another parameter of the URL changes.
  const original = isDiverged ? JSON.stringify(originalTurns(params.turns)) : null;
  const start = useCallback(
    (steered: SteeringRequest) => {
      startSteered(steered);
      if (original !== null) startOriginal({ ...steered, edits: [], turns: JSON.parse(original) as Turn[] });
    },
    [startSteered, startOriginal, original],
  );
  const isIdle = generator.generation.status === "idle";
  const isRequested = useRef(false);
  useEffect(() => {
    // Without edits both texts are equal, so the first ones wait for the Generate button.
    if (isEmptyPrompt(paramsToPrompt(params)) || (edits.length === 0 && isIdle && !isRequested.current)) return;
    isRequested.current = false;
    start(request);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the key contains everything that determines the texts
  }, [key, start]);
  const unchanged = JSON.stringify(turns.turns) === JSON.stringify(params.turns) && draft.text === params.prompt;
  const commit = () => (params.turns.length > 0 ? turns.commit() : draft.commit());
  const generate = () => {
    isRequested.current = !unchanged;
    if (unchanged) start(request);
    else commit();
  };
  return { params, setParams, edits, replaceAll, generator, draft, turns, request, generate, commit };
}

interface LowerSectionsProps {
  readonly run: RunSummary;
  readonly state: ReturnType<typeof useSteering>;
  /** The prompt, and its tokens once it has been routed. */
  readonly text: string;
  readonly tokens: RoutingResponse["tokens"] | undefined;
}

/** Below the texts: strength sweep, settings and code export. */
function LowerSections({ run, state, text, tokens }: LowerSectionsProps) {
  const { params, setParams, edits, request } = state;
  const tray = useTray();
  const hasPrompt = !isEmptyPrompt(paramsToPrompt(params));
  return (
    <>
      {hasPrompt && <DosePane run={run.name} request={request} edits={edits} onChange={(edit) => tray.put(edit)} />}
      <div className="steering-settings">
        <SamplingSettings params={params} setParams={setParams} />
        <ScopeSettings params={params} setParams={setParams} tokens={tokens} />
        <GateSettings run={run} params={params} setParams={setParams} />
        <PromptSettings run={run.name} params={params} setParams={setParams} />
        {hasPrompt && (
          <CodeExport
            run={run}
            request={request}
            text={text}
            code={params.code}
            onCode={(code) => setParams({ code })}
          />
        )}
      </div>
    </>
  );
}

function Steering({ run }: { readonly run: RunSummary }) {
  const state = useSteering(run);
  const { params, setParams, edits, replaceAll, generator, draft, turns, generate, commit } = state;
  const { generation } = generator;
  const prompt = paramsToPrompt(params);
  const needsRouting = edits.length > 0 || params.scope === "chosen" || params.turns.length > 0;
  const routing = useQuery(routingQuery(run.name, needsRouting ? prompt : ""));
  const routed = routing.isPlaceholderData ? undefined : routing.data;
  const text = usePromptText(params, routed);
  const choose = (next: string) => setParams({ prompt: next, lock: null, at: [], session: "" }, "push");
  return (
    <div className="steering">
      <EditList
        run={run}
        edits={edits}
        routing={routed}
        steered={generation.steered}
        onBeforeChange={commit}
        onReset={replaceAll}
      />
      <div className="steering-main">
        <PromptRow
          run={run}
          draft={draft}
          turns={turns}
          generator={generator}
          onGenerate={generate}
          onChoose={choose}
        />
        <FindPane run={run} params={params} setParams={setParams} prompt={draft.text} commit={commit} />
        <OpenedSession id={params.session} onClose={() => setParams({ session: "" })} />
        {generation.status === "idle" && (isEmptyPrompt(prompt) || edits.length === 0) ? (
          <EmptyPrompt run={run} isTyped={draft.text.trim() !== "" || turns.turns.length > 0} onChoose={choose} />
        ) : (
          <Streams
            generation={generation}
            prompt={params.turns.length > 0 ? replyStart(params.turns) : params.prompt}
            maxTokens={params.tokens}
            edits={edits.length}
            lock={params.lock}
            onLock={(lock) => setParams({ lock })}
            onRetry={generate}
          />
        )}
        <LowerSections run={run} state={state} text={text} tokens={routed?.tokens} />
      </div>
    </div>
  );
}

/** The session menu of the page bar. */
function RunSessions({ run }: { readonly run: string }) {
  const [params, setParams] = useUrlState(STEERING_PARAMS);
  const { edits } = useTray();
  return (
    <Sessions
      run={run}
      request={steeringRequest(params, edits)}
      canSave={!isEmptyPrompt(paramsToPrompt(params))}
      open={params.session}
      onSaved={(session) => setParams({ session })}
    />
  );
}

export default function SteeringPage() {
  const { summary } = useCurrentRun();
  return (
    <>
      <title>Steering · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Steering" }]}>{summary !== null && <RunSessions run={summary.name} />}</PageBar>
      <WithRun>{(run) => <Steering key={run.name} run={run} />}</WithRun>
    </>
  );
}
