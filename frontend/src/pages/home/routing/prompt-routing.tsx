/** A prompt routed through the run: one expert's activation under each token, and all experts of one token. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { routingQuery } from "@/api/queries";
import type { ExpertRow, RoutedToken, RoutingResponse } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { Button, LinkButton } from "@/components/ui/button";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useShortcut } from "@/hooks/use-shortcut";
import { formatCount } from "@/lib/text/format";

import { PromptEditor } from "./prompt-editor";
import { RoutedPrompt } from "./routed-prompt";
import { strongestToken } from "./routed-tokens";
import { TokenExperts } from "./token-experts";

interface PromptRoutingProps {
  readonly run: string;
  readonly row: ExpertRow;
  readonly prompt: string;
  readonly token: number | null;
  readonly onPrompt: (text: string | null) => void;
  readonly onToken: (token: number | null) => void;
}

interface RoutedTokensProps extends PromptRoutingProps {
  readonly routing: RoutingResponse;
  readonly onEdit: () => void;
}

function RoutedTokens({ row, routing, token, onToken, onEdit }: RoutedTokensProps) {
  const [hovered, setHovered] = useState<number | null>(null);
  const locked = token ?? strongestToken(routing.tokens, row.expert);
  const shownToken: RoutedToken | undefined = routing.tokens[hovered ?? locked ?? 0];
  const count = routing.tokens.filter((candidate) => !candidate.start).length;
  useShortcut("release", () => onToken(null), token !== null);
  return (
    <>
      <div>
        <RoutedPrompt
          tokens={routing.tokens}
          row={row}
          locked={locked}
          onHover={setHovered}
          onLock={(index) => onToken(index === token ? null : index)}
        />
        <div className="prompt-foot">
          <span className="dim">
            {formatCount(count)} tokens, routed in {Math.round(routing.took_ms)} ms
          </span>
          <span className="grow" />
          <Button size="small" variant="ghost" shortcut="prompt" onClick={onEdit}>
            Edit prompt
          </Button>
        </div>
      </div>
      {shownToken !== undefined && <TokenExperts token={shownToken} routing={routing} row={row} />}
    </>
  );
}

function PromptPane(props: PromptRoutingProps) {
  const { run, prompt, onPrompt } = props;
  const [editing, setEditing] = useState(false);
  const { data, error, isFetching, refetch } = useQuery(routingQuery(run, prompt));
  useShortcut("prompt", () => setEditing(true), !editing);
  if (editing) {
    const finishEditing = (text: string | null) => {
      setEditing(false);
      if (text !== prompt) onPrompt(text);
    };
    return <PromptEditor label="Prompt to route" action="Route" initial={prompt} onDone={finishEditing} />;
  }
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Routing prompt" rows={3} rowHeight={44} />;
  return (
    <div className="two" aria-busy={isFetching}>
      <RoutedTokens {...props} routing={data} onEdit={() => setEditing(true)} />
    </div>
  );
}

export function PromptRouting(props: PromptRoutingProps) {
  const links = usePageLinks();
  return (
    <section className="band">
      <div className="side">
        <h2 className="big">3. Where it is active</h2>
        <p>
          Shades and numbers: activation of expert <span className="mono">{props.row.expert}</span>. Hover over a token
          to see its experts; click to lock it.
        </p>
        <div className="acts">
          <LinkButton size="small" to={links.page("routing", { prompt: props.prompt })}>
            All experts, all tokens
          </LinkButton>
        </div>
      </div>
      <div className="pane">
        <PromptPane {...props} />
      </div>
    </section>
  );
}
