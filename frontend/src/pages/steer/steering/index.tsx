/** Steering: edits on the left; on the right, the prompt continued without and with them. */

import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef } from "react";
import { Navigate, useLocation } from "react-router";

import { isEmptyPrompt, routingOptionsQuery, routingQuery } from "@/api/queries";
import type { RoutingResponse, RunSummary, SteeringRequest, Turn } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { usePromptedLink } from "@/components/layout/navigation/use-prompted-link";
import { useShare } from "@/components/layout/share";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { ExamplePrompts, Examples } from "@/components/prompt/example-prompts";
import { haveDiverged, originalTurns } from "@/components/prompt/turns-param";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { effectiveK } from "@/components/runs/k-slider";
import { useTray } from "@/components/tray/tray-context";
import { EmptyState } from "@/components/ui/states";
import { useIsNarrow } from "@/hooks/use-is-narrow";
import { readParams, useUrlState, writeParams } from "@/hooks/use-url-state";
import { rememberPrompt } from "@/lib/browser/last-prompt";
import { type Edit, formatEdits } from "@/lib/edits/edits";
import { continuationPrompt, lastMessage } from "@/lib/text/prompts";
import { ChatInput, History, Strengths } from "./chat/chat";
import { EditList } from "./edits/edit-list";
import { PromptHead } from "./inputs/prompt-head";
import { GateSettings, SamplingSettings, ScopeSettings } from "./inputs/settings";
import { CodeExport } from "./sharing/code-export";
import { Gallery, OpenedSession, SaveSession } from "./sharing/sessions";
import { NO_SELECTION, paramsToPrompt, STEERING_PARAMS, type SteeringParams, steeringRequest } from "./steering-params";
import { StrengthView } from "./sweep/strength-view";
import { asReplies, bothReplies, hasBothTexts, isRunning, sharedTexts, withOriginal } from "./texts/generation";
import { Streams } from "./texts/streams";
import { type Generator, useGeneration } from "./texts/use-generation";

import "@/components/prompt/prompt.css";
import "./steering.css";
import "./sweep/sweep.css";
import "./edits/edits.css";
import "./find/find.css";
import "./inputs/settings.css";
import "./texts/streams.css";

interface SharedEdits {
  readonly edits: readonly Edit[];
  /** As one history entry, so that Back undoes it. */
  readonly replaceAll: (edits: readonly Edit[]) => void;
}

/** Keeps the tray's edits and those in the URL in sync, in both directions. */
function useSharedEdits(): SharedEdits {
  const tray = useTray();
  const [{ edits: urlEdits }, setParams] = useUrlState(STEERING_PARAMS);
  const urlText = formatEdits(urlEdits);
  const trayText = formatEdits(tray.edits);
  /** URL at the last render, and our own changes that it may not show yet. */
  const history = useRef<{ urlText: string; ownChanges: Set<string> }>({ urlText: "", ownChanges: new Set() });
  useEffect(() => {
    const { urlText: before, ownChanges } = history.current;
    history.current.urlText = urlText;
    if (urlText === trayText) {
      ownChanges.clear();
    } else if (urlText !== before && !ownChanges.has(urlText)) {
      ownChanges.add(trayText); // outdated until the next render, and not to be written to the URL
      tray.replaceAll(urlEdits); // a link or the Back button changed the URL
    } else if (!ownChanges.has(trayText)) {
      ownChanges.add(trayText);
      setParams({ edits: tray.edits });
    }
  }, [urlText, urlEdits, setParams, tray, trayText]);
  const replaceAll = (edits: readonly Edit[]) => {
    history.current.ownChanges.add(formatEdits(edits));
    setParams({ edits }, "push");
    tray.replaceAll(edits);
  };
  return { edits: tray.edits, replaceAll };
}

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

/** The beginning of the reply that a chat prescribes. */
const replyStart = (turns: SteeringParams["turns"]): string => {
  const last = turns.at(-1);
  return last?.role === "assistant" ? last.text : "";
};

/** The turns with the replies to them; without replies, the turns before the unanswered message. */
function withReplies(turns: SteeringParams["turns"], replies: ReturnType<typeof bothReplies>): SteeringParams["turns"] {
  const [before, last] = [turns.slice(0, -1), turns.at(-1)];
  if (replies === undefined) return last?.role === "user" ? before : turns;
  const start = replyStart(turns);
  const reply = { role: "assistant" as const, text: start + replies.steered, original: start + replies.original };
  return [...(last?.role === "assistant" ? before : turns), reply];
}

function sideBySide(steered: Generator, original: Generator): Generator {
  const stop = () => {
    steered.stop();
    original.stop();
  };
  return { ...steered, generation: withOriginal(steered.generation, original.generation), stop };
}

/** The page's state, and the generation that it starts. */
function useSteering(run: RunSummary, view: View) {
  const [urlParams, setParams] = useUrlState(STEERING_PARAMS);
  const params = useMemo(() => ({ ...urlParams, k: effectiveK(run, urlParams.k) }), [urlParams, run]);
  const { edits, replaceAll } = useSharedEdits();
  const steeredGenerator = useGeneration(run.name);
  const originalGenerator = useGeneration(run.name);
  const choose = (prompt: string) => setParams({ prompt, turns: [], ...NO_SELECTION }, "push");
  const draft = usePromptDraft(params.prompt, choose, null);
  const request = useMemo(() => steeringRequest(params, edits), [params, edits]);
  const key = JSON.stringify(request);
  // Once the chats have diverged, the original model answers its own history, in a generation without edits.
  const isDiverged = haveDiverged(params.turns);
  const together = isDiverged ? sideBySide(steeredGenerator, originalGenerator) : steeredGenerator;
  const generator = view === "chat" ? { ...together, generation: asReplies(together.generation) } : together;
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
    // The sweep generates its own texts.
    if (view === "strength") return;
    // Without edits both texts are equal, so the first ones wait for the Generate button.
    if (isEmptyPrompt(paramsToPrompt(params)) || (edits.length === 0 && isIdle && !isRequested.current)) return;
    isRequested.current = false;
    start(request);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the key contains everything that determines the texts
  }, [key, start, view]);
  const generate = () => {
    isRequested.current = draft.text !== params.prompt;
    if (draft.text === params.prompt) start(request);
    else draft.commit();
  };
  /** Both chats continue with their own replies and the message. A message without a reply is replaced. */
  const send = (message: string) => {
    isRequested.current = true;
    const begun = withReplies(params.turns, bothReplies(generator.generation));
    setParams({ turns: [...begun, { role: "user", text: message }], ...NO_SELECTION }, "push");
  };
  /** Its edits leave the tray with it. */
  const closeSession = () => {
    setParams({ session: "" });
    replaceAll([]);
  };
  return { params, setParams, edits, replaceAll, closeSession, generator, draft, request, generate, send, choose };
}

/** What the page's views share. */
export type SteeringPageState = ReturnType<typeof useSteering>;

interface LowerSectionsProps {
  readonly run: RunSummary;
  readonly state: SteeringPageState;
  /** The prompt, and its tokens once it has been routed. */
  readonly text: string;
  readonly tokens: RoutingResponse["tokens"] | undefined;
}

/** Below the texts: settings and code export. */
function LowerSections({ run, state: { params, setParams, request }, text, tokens }: LowerSectionsProps) {
  return (
    <div className="steering-settings">
      <SamplingSettings params={params} setParams={setParams} />
      <ScopeSettings params={params} setParams={setParams} tokens={tokens} />
      <GateSettings run={run} params={params} setParams={setParams} />
      {!isEmptyPrompt(paramsToPrompt(params)) && (
        <CodeExport run={run} request={request} text={text} code={params.code} onCode={(code) => setParams({ code })} />
      )}
    </div>
  );
}

function streamProps({ params, setParams, edits, generator, generate }: SteeringPageState) {
  return {
    generation: generator.generation,
    maxTokens: params.tokens,
    edits: edits.length,
    lock: params.lock,
    onLock: (lock: SteeringParams["lock"]) => setParams({ lock }),
    onRetry: generate,
  };
}

/** The chats of the original and of the steered model. */
function ChatColumns({ run, state }: Pick<LowerSectionsProps, "run" | "state">) {
  const { params, setParams, edits, generator, send } = state;
  const { generation } = generator;
  const begun = params.turns.filter(({ text }) => text !== "");
  const start = replyStart(begun);
  return (
    <>
      <OpenedSession id={params.session} onClose={state.closeSession} />
      {begun.length === 0 ? (
        <div className="steering-empty">
          {edits.length === 0 ? (
            <EmptyState title="Add an expert to the tray, then send a message">
              The original model and the model with the edits of the tray both answer it. The tray is empty, so both
              would give the same answer. A saved chat below brings its own edit.
            </EmptyState>
          ) : (
            <EmptyState title="Send a message">
              The original model and the model with the edits of the tray both answer it. Each keeps its own history.
            </EmptyState>
          )}
          <Gallery run={run} most={6} onlyChats>
            <Examples prompts={MESSAGES} onChoose={send} />
          </Gallery>
        </div>
      ) : (
        <Streams
          {...streamProps(state)}
          prompt={start}
          history={(variant) => <History turns={start === "" ? begun : begun.slice(0, -1)} variant={variant} />}
        />
      )}
      <ChatInput
        key={`${params.turns.length} ${lastMessage(params.turns)}`} // empty after a message was sent
        initial={begun.length === 0 ? params.prompt : ""}
        isGenerating={isRunning(generation)}
        hasTurns={begun.length > 0}
        onSend={send}
        onStop={generator.stop}
        onNew={() => {
          generator.stop();
          setParams({ turns: NO_MESSAGE, prompt: "", ...NO_SELECTION }, "push");
        }}
      />
    </>
  );
}

interface EmptyPromptProps {
  readonly run: RunSummary;
  readonly isTyped: boolean;
  readonly onChoose: (prompt: string) => void;
}

/** What can be continued, while there is no prompt. */
function EmptyPrompt({ run, isTyped, onChoose }: EmptyPromptProps) {
  return (
    <div className="steering-empty">
      <EmptyState title={isTyped ? "Press Generate to continue the prompt" : "Type a prompt to continue"}>
        It is continued twice with the same random numbers: as baseline, and with the edits on the left.
      </EmptyState>
      <Gallery run={run} most={6}>
        {run.indexed_tokens !== null && (
          <ExamplePrompts run={run.name} toPrompt={continuationPrompt} onChoose={onChoose} />
        )}
      </Gallery>
    </div>
  );
}

function Steering({ run, view }: { readonly run: RunSummary; readonly view: View }) {
  const state = useSteering(run, view);
  const { params, edits, replaceAll, generator, draft, generate, choose } = state;
  const { generation } = generator;
  const prompt = paramsToPrompt(params);
  const needsRouting = edits.length > 0 || params.scope === "chosen" || params.turns.length > 0;
  const routing = useQuery(routingQuery(run.name, needsRouting ? prompt : ""));
  const routed = routing.isPlaceholderData ? undefined : routing.data;
  const text = usePromptText(params, routed);
  const linkTo = usePromptedLink();
  const tray = useTray();
  const isNarrow = useIsNarrow();
  useShare(
    run.name,
    hasBothTexts(generation) && !isRunning(generation) ? () => sharedTexts(state.request, generation) : null,
  );
  return (
    <div className="steering">
      <EditList
        run={run}
        edits={edits}
        routing={routed}
        steered={generation.steered}
        sweepUrl={view === "strength" ? null : linkTo("strength")}
        onBeforeChange={draft.commit}
        onReset={replaceAll}
      />
      <div className="steering-main">
        {/* Beside the texts, the tray itself stays in view. */}
        {view !== "strength" && isNarrow && edits.length > 0 && (
          <Strengths run={run.name} edits={edits} onChange={(edit) => tray.put(edit)} />
        )}
        {view === "chat" && <ChatColumns run={run} state={state} />}
        {view === "strength" && <StrengthView run={run} state={state} />}
        {view === "text" && (
          <>
            <PromptHead
              run={run}
              state={state}
              action="Generate"
              onSubmit={generate}
              onStop={isRunning(generation) ? generator.stop : null}
            />
            {generation.status === "idle" && (isEmptyPrompt(prompt) || edits.length === 0) ? (
              <EmptyPrompt run={run} isTyped={draft.text.trim() !== ""} onChoose={choose} />
            ) : (
              <Streams {...streamProps(state)} prompt={params.prompt} />
            )}
          </>
        )}
        <LowerSections run={run} state={state} text={text} tokens={routed?.tokens} />
      </div>
    </div>
  );
}

/** The page bar's button that saves a session. */
function Save({ run }: { readonly run: string }) {
  const [params, setParams] = useUrlState(STEERING_PARAMS);
  const { edits } = useTray();
  if (isEmptyPrompt(paramsToPrompt(params))) return null;
  return (
    <SaveSession run={run} request={steeringRequest(params, edits)} onSaved={(session) => setParams({ session })} />
  );
}

/** A chat, and why the run's tokenizer has none. */
function Chat({ run }: { readonly run: RunSummary }) {
  const { data } = useQuery(routingOptionsQuery(run.name));
  return (
    <>
      {data?.chat === false && (
        <p className="no-chat" role="note">
          {data.no_chat}
        </p>
      )}
      <Steering run={run} view="chat" />
    </>
  );
}

const VIEWS = { text: "Text", chat: "Chat", strength: "Strength", sessions: "Sessions" } as const;
type View = keyof typeof VIEWS;
const VIEW_OF: Readonly<Record<string, View>> = { "/chat": "chat", "/strength": "strength", "/sessions": "sessions" };

/** Replies are longer than the continuations of a text. */
const CHAT_TOKENS = 128;

/** Short questions that a small model answers in a few sentences. */
const MESSAGES = ["How do I make a good cup of tea?", "What do you like about Mondays?", "Tell me about a river."];

/** A chat to which nothing has been sent. */
const NO_MESSAGE: SteeringParams["turns"] = [{ role: "user", text: "" }];

/** The address of a new chat, whose input holds the prompt. */
function chatUrl(search: string): string {
  const { tokens } = readParams(STEERING_PARAMS, search);
  const changed = { turns: NO_MESSAGE, at: [], tokens: Math.max(tokens, CHAT_TOKENS) };
  return `/chat${writeParams(STEERING_PARAMS, search, changed)}`;
}

export default function SteeringPage() {
  const { summary } = useCurrentRun();
  const { pathname, search } = useLocation();
  const view = VIEW_OF[pathname] ?? "text";
  const isChat = new URLSearchParams(search).has("turns");
  if (view === "text" && isChat) return <Navigate replace to={`/chat${search}`} />;
  if (view === "chat" && !isChat) return <Navigate replace to={chatUrl(search)} />;
  return (
    <>
      <title>{`${VIEWS[view]} · Steer · MxD Explorer`}</title>
      <PageBar crumbs={[{ label: VIEWS[view] }]}>{summary !== null && <Save run={summary.name} />}</PageBar>
      <WithRun>
        {(run) =>
          view === "sessions" ? (
            <div className="sessions-page">
              <Gallery run={run} />
            </div>
          ) : view === "chat" ? (
            <Chat key={run.name} run={run} />
          ) : (
            <Steering key={`${run.name} ${view}`} run={run} view={view} />
          )
        }
      </WithRun>
    </>
  );
}
