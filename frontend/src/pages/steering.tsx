/** Turning experts up and down: edits on the left, the same prompt continued without and with them on the right. */

import "@/components/prompt/prompt.css";
import "./steering.css";
import "./steering/dose.css";
import "./steering/edits.css";
import "./steering/settings.css";
import "./steering/streams.css";

import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";

import { isNoPrompt, routingQuery } from "@/api/queries";
import type { RoutingResponse, RunSummary } from "@/api/types";
import { useCurrentRun, WithRun } from "@/components/current-run";
import { chosenK } from "@/components/k-choice";
import { useTurnsDraft } from "@/components/prompt/chat-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { PageBar } from "@/components/shell/page-bar";
import { useTray } from "@/components/tray/tray-context";
import { useUrlState } from "@/url-state";

import { DosePane } from "./steering/dose-pane";
import { EditList } from "./steering/edit-list";
import { Elsewhere } from "./steering/elsewhere";
import { Nothing, PromptRow } from "./steering/prompt-row";
import { OpenedSession, Sessions } from "./steering/sessions";
import { GateSettings, PromptSettings, SamplingSettings, ScopeSettings } from "./steering/settings";
import { promptOf, STEERING_PARAMS, steeringRequest } from "./steering/steering-params";
import { Streams } from "./steering/streams";
import { useGeneration } from "./steering/use-generation";
import { useSharedEdits } from "./steering/use-shared-edits";

/** A chat as one text, once it has been read. */
function textOfTokens(routing: RoutingResponse | undefined): string {
  const tokens = routing?.tokens.filter((token) => !token.start) ?? [];
  return tokens.map((token) => token.text).join("");
}

/** The state of the page, and the generation that follows from it. */
function useSteering(run: RunSummary) {
  const [asked, setParams] = useUrlState(STEERING_PARAMS);
  const params = useMemo(() => ({ ...asked, k: chosenK(run, asked.k) }), [asked, run]);
  const { edits, replaceAll } = useSharedEdits();
  const generator = useGeneration(run.name);
  // Tokens that were chosen belong to the prompt that they were chosen in.
  const anew = { lock: null, at: [], session: "" };
  const draft = usePromptDraft(params.prompt, (prompt) => setParams({ prompt, ...anew }, "push"), null);
  const turns = useTurnsDraft(params.turns, (next) => setParams({ turns: next, ...anew }, "push"));
  const request = useMemo(() => steeringRequest(params, edits), [params, edits]);
  const key = JSON.stringify(request);
  const { start } = generator;
  useEffect(() => {
    if (!isNoPrompt(promptOf(params))) start(request);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the key says all that the texts depend on
  }, [key, start]);
  const unchanged = JSON.stringify(turns.turns) === JSON.stringify(params.turns) && draft.text === params.prompt;
  const commit = () => (params.turns.length > 0 ? turns.commit() : draft.commit());
  const generate = () => (unchanged ? start(request) : commit());
  return { params, setParams, edits, replaceAll, generator, draft, turns, request, generate, commit };
}

interface LowProps {
  readonly run: RunSummary;
  readonly state: ReturnType<typeof useSteering>;
  /** The prompt, and its tokens once it has been read. */
  readonly text: string;
  readonly tokens: RoutingResponse["tokens"] | undefined;
}

/** Under the texts: how much is enough, how they are written, and the same elsewhere. */
function Low({ run, state, text, tokens }: LowProps) {
  const { params, setParams, edits, request } = state;
  const tray = useTray();
  const hasPrompt = !isNoPrompt(promptOf(params));
  return (
    <div className="steering-low">
      {hasPrompt && <DosePane run={run.name} request={request} edits={edits} onChange={(edit) => tray.put(edit)} />}
      <div className="steering-settings">
        <SamplingSettings params={params} setParams={setParams} />
        <ScopeSettings params={params} setParams={setParams} tokens={tokens} />
        <GateSettings run={run} params={params} setParams={setParams} />
        <PromptSettings run={run.name} params={params} setParams={setParams} />
        {hasPrompt && (
          <Elsewhere
            run={run}
            request={request}
            text={text}
            edits={edits}
            code={params.code}
            onCode={(code) => setParams({ code })}
          />
        )}
      </div>
    </div>
  );
}

function Steering({ run }: { readonly run: RunSummary }) {
  const state = useSteering(run);
  const { params, setParams, edits, replaceAll, generator, draft, turns, generate, commit } = state;
  const { generation } = generator;
  const prompt = promptOf(params);
  const isWanted = edits.length > 0 || params.scope === "chosen" || params.turns.length > 0;
  const routing = useQuery(routingQuery(run.name, isWanted ? prompt : ""));
  const routed = routing.isPlaceholderData ? undefined : routing.data;
  const text = params.turns.length === 0 ? params.prompt : textOfTokens(routed);
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
        <OpenedSession id={params.session} onClose={() => setParams({ session: "" })} />
        {generation.status === "idle" && isNoPrompt(prompt) ? (
          <Nothing run={run} onChoose={choose} />
        ) : (
          <Streams
            generation={generation}
            prompt={text}
            edits={edits.length}
            lock={params.lock}
            onLock={(lock) => setParams({ lock })}
            onRetry={generate}
          />
        )}
        <Low run={run} state={state} text={text} tokens={routed?.tokens} />
      </div>
    </div>
  );
}

/** In the bar: the sessions of this run, and what would be saved. */
function SessionsOfRun({ run }: { readonly run: string }) {
  const [params, setParams] = useUrlState(STEERING_PARAMS);
  const { edits } = useTray();
  return (
    <Sessions
      run={run}
      request={steeringRequest(params, edits)}
      canSave={!isNoPrompt(promptOf(params))}
      open={params.session}
      onSaved={(session) => setParams({ session })}
    />
  );
}

export default function SteeringPage() {
  const { edits } = useTray();
  const { summary } = useCurrentRun();
  const note = edits.length === 0 ? undefined : `${edits.length} ${edits.length === 1 ? "expert" : "experts"}`;
  return (
    <>
      <title>Steering · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Steering" }]} {...(note !== undefined && { note })}>
        {summary !== null && <SessionsOfRun run={summary.name} />}
      </PageBar>
      <WithRun>{(run) => <Steering key={run.name} run={run} />}</WithRun>
    </>
  );
}
