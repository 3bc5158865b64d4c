/** Steering: edits on the left; on the right, the prompt continued without and with them. */

import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from "react";
import { createPortal } from "react-dom";
import { Navigate, useLocation } from "react-router";

import { isEmptyPrompt, routingQuery, sessionQuery } from "@/api/queries";
import type { RoutingResponse, RunSummary, SavedSession } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { usePromptedLink } from "@/components/layout/navigation/pages";
import { useShare } from "@/components/layout/share";
import { ExamplePrompts } from "@/components/prompt/example-prompts";
import { usePromptDraft } from "@/components/prompt/prompt-box";
import { haveDiverged, originalTurns, turnsParam } from "@/components/prompt/turns-param";
import { WithRun } from "@/components/runs/current-run";
import { sessionUrl } from "@/components/runs/page-links";
import { effectiveK } from "@/components/runs/k-slider";
import { useTray } from "@/components/tray/tray-context";
import { EmptyState, LoadingState } from "@/components/ui/states";
import { useUrlState, writeParams } from "@/hooks/use-url-state";
import { rememberPrompt } from "@/lib/browser/stores";
import { type Edit, formatEdits } from "@/lib/edits/edits";
import { continuationPrompt } from "@/lib/text/kwic";

import { ChatView, NO_MESSAGE, withReplies } from "./chat";
import { NarrowStrengths } from "./edit-card";
import { EditList } from "./edit-list";
import { ExampleLink, PromptHead, waitingFor } from "./prompt-head";
import { Gallery, SaveSession } from "./sessions";
import { Settings } from "./settings";
import {
  CHAT_PARAMS,
  NO_SELECTION,
  OPENED,
  paramsToPrompt,
  requestToParams,
  STEERING_PARAMS,
  type SteeringParams,
  steeringRequest,
} from "./steering-params";
import {
  asReplies,
  bothReplies,
  type Generation,
  type Generator,
  hasBothTexts,
  isRunning,
  NO_GENERATION,
  shownTexts,
  storedGeneration,
  useGeneration,
  withOriginal,
} from "./texts/generation";
import { findings } from "./texts/findings";
import { Streams } from "./texts/streams";
import { useControl } from "./texts/use-control";
import { usePrices } from "./prices";

import "@/components/prompt/prompt.css";
import "./steering.css";
import "./strength.css";
import "./find/find.css";

const StrengthView = lazy(async () => ({ default: (await import("./strength")).StrengthView }));

/** Keeps the tray's edits and those in the URL in sync, in both directions. */
function useSharedEdits() {
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
  /** As one history entry, so that Back undoes it. */
  const replaceAll = (edits: readonly Edit[]) => {
    history.current.ownChanges.add(formatEdits(edits));
    setParams({ edits }, "push");
    tray.replaceAll(edits);
  };
  return { edits: tray.edits, replaceAll };
}

/** The prompt as text, formatted by the chat template for a chat. Other pages continue with a chat's text. */
function usePromptText({ prompt, turns }: SteeringParams, routed: RoutingResponse | undefined) {
  const isChat = turns.length > 0;
  const tokens = routed?.tokens.filter((token) => !token.start) ?? [];
  const text = isChat ? tokens.map((token) => token.text).join("") : prompt;
  useEffect(() => {
    if (isChat && text !== "") rememberPrompt(text, turnsParam.write(turns) ?? "");
  }, [isChat, text, turns]);
  return text;
}

function sideBySide(steered: Generator, original: Generator): Generator {
  const both = (name: "stop" | "clear") => () => {
    steered[name]();
    original[name]();
  };
  const generation = withOriginal(steered.generation, original.generation);
  return { ...steered, generation, stop: both("stop"), clear: both("clear") };
}

/**
 * The texts that the open session keeps, while the address has its request; undefined while the session is loading.
 * Whether the address has another one.
 */
function useStored(run: RunSummary, params: SteeringParams) {
  const { data, isLoading } = useQuery(sessionQuery(params.session));
  const stored = useMemo(() => (data?.result == null ? null : storedGeneration(data.result)), [data]);
  if (data === undefined) return { stored: isLoading ? undefined : null, result: null, isChanged: false };
  const saved = { ...params, ...requestToParams(data.steering) };
  const [own, shown] = [{ ...saved, k: effectiveK(run, saved.k) }, params].map((one) =>
    JSON.stringify([steeringRequest(one, []), formatEdits(one.edits)]),
  );
  if (own !== shown) return { stored: null, result: null, isChanged: true };
  return { stored, result: data.result, isChanged: false };
}

/** The texts of the page: those of the open session, or those that `begin` generates. */
function useTexts(run: RunSummary, view: View, params: SteeringParams, edits: readonly Edit[]) {
  const request = useMemo(() => steeringRequest(params, edits), [params, edits]);
  const steeredGenerator = useGeneration(run.name);
  const originalGenerator = useGeneration(run.name);
  // Once the chats have diverged, the original model answers its own history, in a generation without edits.
  const original = haveDiverged(params.turns) ? originalTurns(params.turns) : null;
  const together = original === null ? steeredGenerator : sideBySide(steeredGenerator, originalGenerator);
  const isIdle = together.generation.status === "idle";
  const { stored, result, isChanged } = useStored(run, params);
  const shownAs = view === "chat" ? asReplies : (texts: Generation) => texts;
  const generation = isIdle && stored != null ? stored : shownAs(together.generation);
  const prompt = paramsToPrompt(params);
  const [key, continued] = [JSON.stringify([request, original]), JSON.stringify(prompt)];
  const startedKey = useRef<string | null>(null);
  const { control, end, onControl } = useControl(run, edits, request, {
    generation,
    shownAs,
    isDone: () => generation.status === "done" && startedKey.current === key,
    stored: isIdle ? result : null,
  });
  /** What the page showed last, and the prompt that it continues. */
  const last = useRef({ generation: NO_GENERATION, continued });
  /** Whether the next texts begin without the Generate button. */
  const requestedRef = useRef(false);
  const begin = () => {
    requestedRef.current = false;
    startedKey.current = key;
    // Texts of another prompt say nothing about this one.
    const shown = last.current.continued === continued ? last.current.generation : NO_GENERATION;
    end(shown !== NO_GENERATION);
    steeredGenerator.start(request, shown);
    if (original !== null) originalGenerator.start({ ...request, edits: [], turns: [...original] }, shown);
  };
  useEffect(() => {
    // The sweep generates its own texts.
    if (view === "strength") return;
    // The first texts wait for the Generate button if they are stored, or would be equal without edits.
    const waits = isIdle && (edits.length === 0 || stored !== null) && !requestedRef.current;
    // Texts go with their prompt, such as on the way back.
    if (isEmptyPrompt(prompt)) together.clear();
    else if (!waits && (isIdle || startedKey.current !== key)) begin();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the key contains everything that determines the texts
  }, [key, view, stored === null]);
  useEffect(() => {
    if (generation.status !== "idle") last.current = { generation, continued };
  });
  const generator: Generator = { ...together, generation };
  return { prompt, request, generator, control, onControl, original, isChanged, begin, requestedRef };
}

/** The page's state, and the generation that it starts. */
function useSteering(run: RunSummary, view: View) {
  const [urlParams, setParams] = useUrlState(paramsOf(view));
  const params = useMemo(() => ({ ...urlParams, k: effectiveK(run, urlParams.k) }), [urlParams, run]);
  const { edits, replaceAll } = useSharedEdits();
  const choose = (prompt: string) => setParams({ prompt, turns: [], ...NO_SELECTION }, "push");
  const draft = usePromptDraft(params.prompt, choose, null);
  const { begin, requestedRef, original, ...own } = useTexts(run, view, params, edits);
  const { control, generator } = own;
  const { generation } = generator;
  const generate = () => {
    requestedRef.current = draft.text !== params.prompt;
    if (requestedRef.current) draft.commit();
    else if (!isEmptyPrompt(own.prompt)) begin();
  };
  /** Both chats continue with their own replies and the message. A message without a reply is replaced. */
  const send = (message: string) => {
    requestedRef.current = true;
    const begun = withReplies(params.turns, bothReplies(generation));
    setParams({ turns: [...begun, { role: "user", text: message }], ...NO_SELECTION }, "push");
  };
  /** Its edits leave the tray with it. */
  const closeSession = () => {
    setParams({ session: "" });
    replaceAll([]);
  };
  /** As it was saved; its texts are written again. */
  const reopen = ({ steering, result }: SavedSession) => {
    const { edits: saved = [], ...rest } = requestToParams(steering, result?.original_turns);
    setParams(rest);
    replaceAll(saved);
  };
  const isComplete = hasBothTexts(generation) && ![generation, control?.generation ?? generation].some(isRunning);
  const texts = isComplete ? shownTexts(generation, original, control) : null;
  /** Without edits, both texts are the same. */
  const isSame = edits.length === 0 && original === null;
  const costs = usePrices(run.name, [edits]);
  const actions = { setParams, replaceAll, closeSession, reopen, generate, send, choose };
  return { ...own, ...actions, run, params, edits, draft, texts, isSame, costs };
}

/** What the page's views share. */
export type SteeringPageState = ReturnType<typeof useSteering>;

export interface StateProps {
  readonly state: SteeringPageState;
}

/** What can be continued, while there is no prompt. */
function EmptyPrompt({ state }: StateProps) {
  const { run, edits, choose } = state;
  return (
    <div className="steering-empty">
      <EmptyState title={waitingFor(state, "Generate")}>
        <p>
          It is continued with the same random numbers by the original model, with the experts of the tray turned up or
          down, and with random experts in their place.
        </p>
        {edits.length === 0 && <ExampleLink state={state} view="steering" action="Generate" />}
      </EmptyState>
      <Gallery run={run} most={6}>
        {run.indexed_tokens !== null && (
          <ExamplePrompts run={run.name} toPrompt={continuationPrompt} onChoose={choose} />
        )}
      </Gallery>
    </div>
  );
}

interface SteeringProps {
  readonly run: RunSummary;
  readonly view: View;
  /** The page bar's room for buttons. */
  readonly bar: HTMLElement | null;
}

function Steering({ run, view, bar }: SteeringProps) {
  const state = useSteering(run, view);
  const { params, edits, generator, generate, request, texts, prompt } = state;
  const { generation, stop } = generator;
  const needsRouting = edits.length > 0 || params.scope === "chosen" || params.turns.length > 0;
  const routing = useQuery(routingQuery(run.name, needsRouting ? prompt : ""));
  const routed = routing.isPlaceholderData ? undefined : routing.data;
  const text = usePromptText(params, routed);
  const linkTo = usePromptedLink();
  const [price = null] = state.costs.prices;
  const session = useQuery(sessionQuery(params.session)).data;
  const found = findings(generation, state.control, price);
  if (session !== undefined && !state.isChanged) found.unshift(`Session “${session.name}”.`);
  useShare(run.name, texts && (() => ({ kind: "steering", request, ...texts, findings: found })));
  const onStop = isRunning(generation) ? stop : null;
  const isSavable = view !== "strength" && !isEmptyPrompt(prompt) && params.session === "";
  return (
    <div className="steering">
      {isSavable && bar !== null && createPortal(<SaveSession state={state} />, bar)}
      <EditList state={state} routing={routed} sweepUrl={view === "strength" ? null : linkTo("strength")} />
      <div className="steering-main">
        {view !== "strength" && <NarrowStrengths state={state} />}
        {view === "chat" && <ChatView state={state} />}
        {view === "strength" && (
          <Suspense fallback={<LoadingState label="Loading" />}>
            <StrengthView state={state} />
          </Suspense>
        )}
        {view === "text" && (
          <>
            <PromptHead state={state} action="Generate" onSubmit={generate} onStop={onStop} />
            {generation.status === "idle" && (isEmptyPrompt(prompt) || edits.length === 0) ? (
              <EmptyPrompt state={state} />
            ) : (
              <Streams state={state} prompt={params.prompt} />
            )}
          </>
        )}
        <Settings state={state} text={text} tokens={routed?.tokens} />
      </div>
    </div>
  );
}

const VIEWS = { text: "Text", chat: "Chat", strength: "Strength", sessions: "Sessions" } as const;
type View = keyof typeof VIEWS;
const VIEW_OF: Readonly<Record<string, View>> = { "/chat": "chat", "/strength": "strength", "/sessions": "sessions" };

const paramsOf = (view: View) => (view === "chat" ? CHAT_PARAMS : STEERING_PARAMS);

/** The address of a new chat, whose input holds the prompt. */
const chatUrl = (search: string) => `/chat${writeParams(STEERING_PARAMS, search, { turns: NO_MESSAGE, at: [] })}`;

export default function SteeringPage() {
  const { pathname, search, ...location } = useLocation();
  const [bar, setBar] = useState<HTMLElement | null>(null);
  const view = VIEW_OF[pathname] ?? "text";
  const address = new URLSearchParams(search);
  const isChat = address.has("turns");
  const session = address.get("session");
  // The address of a session alone: it has the rest. An empty one has nothing.
  const isAlone = !["prompt", "turns", "edits"].some((name) => address.has(name));
  if (session && view !== "sessions" && isAlone && (location.state as unknown) !== OPENED)
    return <Navigate replace to={sessionUrl(session)} />;
  if (view === "text" && isChat) return <Navigate replace to={`/chat${search}`} />;
  if (view === "chat" && !isChat) return <Navigate replace to={chatUrl(search)} />;
  return (
    <>
      <title>{`${VIEWS[view]} · Steer · MxD Explorer`}</title>
      <PageBar crumbs={[{ label: VIEWS[view] }]}>
        <span ref={setBar} className="row" />
      </PageBar>
      <WithRun>
        {(run) =>
          view === "sessions" ? (
            <div className="sessions-page">
              <Gallery run={run} />
            </div>
          ) : (
            <Steering key={`${run.name} ${view}`} run={run} view={view} bar={bar} />
          )
        }
      </WithRun>
    </>
  );
}
