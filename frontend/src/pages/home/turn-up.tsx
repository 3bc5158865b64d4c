/** The expert turned up: one slider, and the same prompt gone on with and without it. */

import { useEffect, useMemo, useState } from "react";

import type { SteeringRequest } from "@/api/types";
import { Button, LinkButton } from "@/components/button";
import { usePageLinks } from "@/components/links";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { describeEdit, type Edit, formatEdits } from "@/lib/edits";
import { onOneLine } from "@/lib/token-text";

import { GeneratedText } from "./generated-text";
import { PromptEditor } from "./prompt-editor";
import { StrengthControl, type StrengthControlProps } from "./strength-control";
import { useGeneration } from "./use-generation";

const MAX_TOKENS = 48;

interface TextsProps {
  readonly run: string;
  readonly prompt: string;
  readonly edit: Edit;
  readonly onPrompt: (text: string | null) => void;
}

function requestFor(prompt: string, edit: Edit): SteeringRequest {
  return {
    prompt,
    edits: [edit],
    apply: "on-top",
    scope: "all",
    sampling: { max_tokens: MAX_TOKENS },
  };
}

function PromptLine({ prompt, onEdit }: { readonly prompt: string; readonly onEdit: () => void }) {
  return (
    <div className="pane-h">
      <h2>Prompt</h2>
      <span className="text prompt-line">{onOneLine(prompt, true)}</span>
      <Button size="small" variant="ghost" icon="edit" aria-label="Edit what both texts go on from" onClick={onEdit} />
      <span className="grow" />
      <RampLegend kind="diverging" low="less" high="more likely than by default" />
    </div>
  );
}

function Texts({ run, prompt, edit, onPrompt }: TextsProps) {
  const [editing, setEditing] = useState(false);
  const { generation, start } = useGeneration(run);
  const request = useMemo(() => requestFor(prompt, edit), [prompt, edit]);
  useEffect(() => {
    if (prompt !== "") start(request);
  }, [prompt, request, start]);
  if (editing) {
    const done = (text: string | null) => {
      setEditing(false);
      if (text !== prompt) onPrompt(text);
    };
    return <PromptEditor label="Prompt to go on from" action="Generate" initial={prompt} onDone={done} />;
  }
  return (
    <>
      <PromptLine prompt={prompt} onEdit={() => setEditing(true)} />
      <div className="cols">
        <div>
          <h3>Default</h3>
          <GeneratedText arm="default" generation={generation} />
        </div>
        <div>
          <h3>
            Steered{" "}
            <span>
              {edit.expert} {describeEdit(edit)}
            </span>
          </h3>
          <GeneratedText arm="steered" generation={generation} onRetry={() => start(request)} />
        </div>
      </div>
    </>
  );
}

interface TurnUpProps extends StrengthControlProps, Omit<TextsProps, "edit"> {}

export function TurnUp({ run, prompt, onPrompt, ...control }: TurnUpProps) {
  const links = usePageLinks();
  const { mode, strength } = control;
  const { expert } = control.row;
  const edit = useMemo(() => ({ expert, mode, strength }), [expert, mode, strength]);
  return (
    <section className="band last">
      <div className="side">
        <h2 className="big">Turn it up</h2>
        <StrengthControl {...control} />
        <div className="acts">
          <LinkButton size="small" to={links.page("steering", { prompt, edits: formatEdits([edit]) })}>
            All controls
          </LinkButton>
        </div>
      </div>
      <div className="pane">
        <Texts run={run} prompt={prompt} edit={edit} onPrompt={onPrompt} />
      </div>
    </section>
  );
}
