/** Steering with one expert: a strength control, and a continuation of one prompt with and without the edit. */

import { useEffect, useMemo, useState } from "react";

import type { SteeringRequest } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { Button, LinkButton } from "@/components/ui/button";
import { describeEdit, type Edit, formatEdits, toHttpEdit } from "@/lib/edits/edits";
import { toOneLine } from "@/lib/text/token-text";
import { PromptEditor } from "@/pages/home/routing/prompt-editor";

import { GeneratedText } from "./generated-text";
import { TextCost } from "./text-cost";
import { StrengthControl, type StrengthControlProps } from "./strength-control";
import { useGeneration } from "./use-generation";

const MAX_TOKENS = 48;

interface GeneratedTextsProps {
  readonly run: string;
  readonly prompt: string;
  readonly edit: Edit;
  readonly onPrompt: (text: string | null) => void;
}

function buildRequest(prompt: string, edit: Edit): SteeringRequest {
  return {
    prompt,
    edits: [toHttpEdit(edit)],
    mode: "residual",
    scope: "all",
    sampling: { max_tokens: MAX_TOKENS },
  };
}

function PromptLine({ prompt, onEdit }: { readonly prompt: string; readonly onEdit: () => void }) {
  return (
    <div className="pane-h">
      <h2>Prompt</h2>
      <span className="text prompt-line">{toOneLine(prompt, true)}</span>
      <Button size="small" variant="ghost" icon="edit" aria-label="Edit the prompt of both texts" onClick={onEdit} />
      <span className="grow" />
      <RampLegend kind="diverging" low="less likely" high="more likely than in the baseline" />
    </div>
  );
}

function GeneratedTexts({ run, prompt, edit, onPrompt }: GeneratedTextsProps) {
  const [editing, setEditing] = useState(false);
  const { generation, start } = useGeneration(run);
  const request = useMemo(() => buildRequest(prompt, edit), [prompt, edit]);
  useEffect(() => {
    if (prompt !== "") start(request);
  }, [prompt, request, start]);
  if (editing) {
    const finishEditing = (text: string | null) => {
      setEditing(false);
      if (text !== prompt) onPrompt(text);
    };
    return <PromptEditor label="Prompt to continue" action="Generate" initial={prompt} onDone={finishEditing} />;
  }
  return (
    <>
      <PromptLine prompt={prompt} onEdit={() => setEditing(true)} />
      <div className="cols">
        <div>
          <h3>Baseline</h3>
          <GeneratedText variant="baseline" generation={generation} />
          <TextCost variant="baseline" generation={generation} />
        </div>
        <div>
          <h3>
            Steered{" "}
            <span>
              {edit.expert} {describeEdit(edit)}
            </span>
          </h3>
          <GeneratedText variant="steered" generation={generation} onRetry={() => start(request)} />
          <TextCost variant="steered" generation={generation} />
        </div>
      </div>
    </>
  );
}

interface SteeringDemoProps extends StrengthControlProps, Omit<GeneratedTextsProps, "edit"> {}

export function SteeringDemo({ run, prompt, onPrompt, ...control }: SteeringDemoProps) {
  const links = usePageLinks();
  const { mode, strength } = control;
  const { expert } = control.row;
  const edit = useMemo(() => ({ expert, mode, strength }), [expert, mode, strength]);
  return (
    <section className="band steered">
      <div className="side">
        <h2 className="big">2. What it changes</h2>
        <StrengthControl {...control} />
        <div className="acts">
          <LinkButton size="small" to={links.page("steering", { prompt, edits: formatEdits([edit]) })}>
            Open in Steering
          </LinkButton>
        </div>
      </div>
      <div className="pane">
        <GeneratedTexts run={run} prompt={prompt} edit={edit} onPrompt={onPrompt} />
      </div>
    </section>
  );
}
