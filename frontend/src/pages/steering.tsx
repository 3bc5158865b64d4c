/** Turning experts up and down: edits on the left, the same prompt continued without and with them on the right. */

import "@/components/prompt/prompt.css";
import "./steering.css";
import "./steering/dose.css";
import "./steering/edits.css";
import "./steering/settings.css";
import "./steering/streams.css";

import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";

import { routingQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { Button } from "@/components/button";
import { WithRun } from "@/components/current-run";
import { FromContext } from "@/components/prompt/from-context";
import { Openings } from "@/components/prompt/openings";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { type PromptDraft, usePromptDraft } from "@/components/prompt/prompt-draft";
import { PageBar } from "@/components/shell/page-bar";
import { useShortcut } from "@/components/shortcuts";
import { EmptyState } from "@/components/states";
import { useTray } from "@/components/tray/tray-context";
import { opening } from "@/lib/prompts";
import { useUrlState } from "@/url-state";

import { DosePane } from "./steering/dose-pane";
import { EditList } from "./steering/edit-list";
import { Elsewhere } from "./steering/elsewhere";
import { isRunning } from "./steering/generation";
import { SamplingSettings, ScopeSettings } from "./steering/settings";
import { STEERING_PARAMS, steeringRequest } from "./steering/steering-params";
import { Streams } from "./steering/streams";
import { type Generator, useGeneration } from "./steering/use-generation";
import { useSharedEdits } from "./steering/use-shared-edits";

interface PromptRowProps {
  readonly run: RunSummary;
  readonly draft: PromptDraft;
  readonly generator: Generator;
  readonly onGenerate: () => void;
  readonly onChoose: (prompt: string) => void;
}

function PromptRow({ run, draft, generator, onGenerate, onChoose }: PromptRowProps) {
  const running = isRunning(generator.generation);
  useShortcut("release", generator.stop, running);
  return (
    <section className="prompt-row">
      <PromptBox
        label="Prompt"
        placeholder="How the text begins"
        value={draft.text}
        onChange={draft.type}
        onSubmit={onGenerate}
      />
      <div className="prompt-actions">
        {run.indexed_tokens !== null && (
          <FromContext run={run.name} onChoose={(context) => onChoose(opening(context))} />
        )}
        {running ? (
          <Button icon="stop" shortcut="release" onClick={generator.stop}>
            Stop
          </Button>
        ) : (
          <Button variant="primary" disabled={draft.text === ""} onClick={onGenerate}>
            Generate<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        )}
      </div>
    </section>
  );
}

function Nothing({ run, onChoose }: { readonly run: RunSummary; readonly onChoose: (prompt: string) => void }) {
  return (
    <div className="steering-empty">
      <EmptyState title="Type how a text begins">
        It is continued twice with the same random numbers: as the language model would, and with the edits on the left.
      </EmptyState>
      {run.indexed_tokens !== null && <Openings run={run.name} cut={opening} onChoose={onChoose} />}
    </div>
  );
}

/** The state of the page, and the generation that follows from it. */
function useSteering(run: RunSummary) {
  const [params, setParams] = useUrlState(STEERING_PARAMS);
  const { edits, replaceAll } = useSharedEdits();
  const generator = useGeneration(run.name);
  const draft = usePromptDraft(params.prompt, (prompt) => setParams({ prompt, lock: null }, "push"), null);
  const request = useMemo(() => steeringRequest(params, edits), [params, edits]);
  const key = JSON.stringify(request);
  const { start } = generator;
  useEffect(() => {
    if (request.prompt !== "") start(request);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the key says all that the texts depend on
  }, [key, start]);
  const generate = () => (draft.text === params.prompt ? start(request) : draft.commit());
  return { params, setParams, edits, replaceAll, generator, draft, request, generate };
}

function Steering({ run }: { readonly run: RunSummary }) {
  const { params, setParams, edits, replaceAll, generator, draft, request, generate } = useSteering(run);
  const { generation } = generator;
  const tray = useTray();
  const routing = useQuery(routingQuery(run.name, edits.length === 0 ? "" : params.prompt));
  const choose = (prompt: string) => setParams({ prompt, lock: null }, "push");
  return (
    <div className="steering">
      <EditList
        run={run}
        edits={edits}
        routing={routing.isPlaceholderData ? undefined : routing.data}
        steered={generation.steered}
        onBeforeChange={draft.commit}
        onReset={replaceAll}
      />
      <div className="steering-main">
        <PromptRow run={run} draft={draft} generator={generator} onGenerate={generate} onChoose={choose} />
        {generation.status === "idle" && params.prompt === "" ? (
          <Nothing run={run} onChoose={choose} />
        ) : (
          <Streams
            generation={generation}
            prompt={params.prompt}
            edits={edits.length}
            lock={params.lock}
            onLock={(lock) => setParams({ lock })}
            onRetry={generate}
          />
        )}
        <div className="steering-low">
          {params.prompt !== "" && (
            <DosePane run={run.name} request={request} edits={edits} onChange={(edit) => tray.put(edit)} />
          )}
          <div className="steering-settings">
            <SamplingSettings params={params} setParams={setParams} />
            <ScopeSettings params={params} setParams={setParams} />
            {params.prompt !== "" && (
              <Elsewhere run={run} request={request} code={params.code} onCode={(code) => setParams({ code })} />
            )}
          </div>
        </div>
      </div>
    </div>
  );
}

export default function SteeringPage() {
  const { edits } = useTray();
  const note = edits.length === 0 ? undefined : `${edits.length} ${edits.length === 1 ? "expert" : "experts"}`;
  return (
    <>
      <title>Steering · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Steering" }]} {...(note !== undefined && { note })} />
      <WithRun>{(run) => <Steering key={run.name} run={run} />}</WithRun>
    </>
  );
}
