/** What the texts continue, above them: a prompt with its search by effect, or the chat that was opened before. */

import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";

import { messageOf } from "@/api/http";
import { routingQuery, sessionsQuery } from "@/api/queries";
import { PromptRow, type PromptRowProps } from "@/components/prompt/prompt-row";
import { pageLinks } from "@/components/runs/page-links";
import { Button, LinkButton } from "@/components/ui/button";
import { useBestExperts } from "@/hooks/use-experts";
import { useDebouncedValue } from "@/hooks/use-values";
import { formatEdits, hasStrength, newEdit } from "@/lib/edits/edits";
import { formatCount, formatPlural } from "@/lib/text/format";
import { continuationPrompt, lastMessage } from "@/lib/text/kwic";
import { toOneLine } from "@/lib/text/token-text";
import { STEER_PROMPT } from "@/pages/explore/expert/expert-params";

import type { StateProps, SteeringPageState } from "./index";
import { OpenedSession } from "./sessions";
import { requestEdits } from "./steering-params";

/** Loaded where it is open. */
const FindPane = lazy(async () => ({ default: (await import("./find/find-pane")).FindPane }));

/** What an empty page waits for. Edits alone are enough: the prompt is then that of the placeholder. */
export function waitingFor({ draft, edits }: SteeringPageState, action: string): string {
  if (draft.text.trim() !== "") return `Press ${action} to continue the prompt`;
  return `Type a prompt${edits.length > 0 ? `, or press ${action} for the one in grey` : " to continue"}`;
}

/** Saved texts of one expert of the run, by the KL divergence on other texts in that of random experts. */
function useCheapest(run: string) {
  const saved = useQuery(sessionsQuery(run)).data?.sessions ?? [];
  return saved
    .flatMap(({ is_chat: isChat, prompt, price, edits: own }) => {
      const [edit, ...more] = requestEdits(own);
      const isOne = !isChat && edit !== undefined && more.length === 0 && hasStrength(edit) && edit.run === undefined;
      return price === null || !isOne ? [] : [{ prompt, edit, price: price.edits.kl / price.random.kl }];
    })
    .toSorted((a, b) => a.price - b.price);
}

interface ExampleLinkProps extends StateProps {
  readonly view: "steering" | "strength";
  readonly action: string;
}

/**
 * The first action of an empty view: the saved edit with the lowest measured price, on its own prompt or the one as
 * typed; without any, the most interesting expert.
 */
export function ExampleLink({ state: { run, draft }, view, action }: ExampleLinkProps) {
  const [best] = useBestExperts(run.name, run.indexed_tokens !== null).experts;
  const [saved] = useCheapest(run.name);
  const edit = saved?.edit ?? (best && newEdit(best.expert));
  if (edit === undefined) return null;
  const params = { prompt: draft.text || (saved?.prompt ?? STEER_PROMPT), edits: formatEdits([edit]) };
  return (
    <LinkButton variant="primary" to={pageLinks(run.name).page(view, params)}>
      {action} an example with expert {edit.expert}
    </LinkButton>
  );
}

type PromptHeadProps = StateProps & Pick<PromptRowProps, "action" | "isDone" | "onSubmit" | "onStop">;

/** Tokens of the prompt as typed, and the most that fit; why it is too long. */
function Length({ run, text, k }: { readonly run: string; readonly text: string; readonly k: number | null }) {
  const typed = useDebouncedValue(text);
  const { data, error, isFetching } = useQuery(routingQuery(run, { text: typed, k }));
  if (typed === "") return null;
  if (error !== null) return <span className="length bad">{messageOf(error)}</span>;
  const startTokens = data?.tokens.filter((token) => token.start).length ?? 0;
  return (
    <span className="length" aria-live="polite" data-busy={isFetching || undefined}>
      {data === undefined ? "…" : formatPlural(data.tokens.length - startTokens, "token")}{" "}
      {data !== undefined && <span className="dim">of {formatCount(data.max_tokens - startTokens)}</span>}
    </span>
  );
}

export function PromptHead({ state, action, isDone, onSubmit, onStop = null }: PromptHeadProps) {
  const { run, params, setParams, draft, choose } = state;
  const message = lastMessage(params.turns);
  const before = params.turns.findLastIndex(({ role }) => role === "user");
  const [isOpen, setOpen] = useState(false);
  const hasExample = state.edits.length > 0;
  const isFinding = isOpen || params.wanted + params.unwanted !== "";
  return (
    <>
      <OpenedSession state={state} />
      {message === "" ? (
        <>
          <PromptRow
            run={run}
            draft={draft}
            placeholder={hasExample ? STEER_PROMPT : "Type a prompt to continue"}
            isReady={hasExample || draft.text !== ""}
            action={action}
            isDone={isDone === true && draft.text === params.prompt}
            onSubmit={hasExample && draft.text === "" ? () => choose(STEER_PROMPT) : onSubmit}
            onExample={(example) => choose(continuationPrompt(example))}
            onStop={onStop}
          >
            <Length run={run.name} text={draft.text} k={params.k} />
            {!isFinding && <Button onClick={() => setOpen(true)}>I want it to say …</Button>}
          </PromptRow>
          {isFinding && (
            <Suspense fallback={<div className="find loads" />}>
              <FindPane run={run} params={params} setParams={setParams} prompt={draft.text} commit={draft.commit} />
            </Suspense>
          )}
        </>
      ) : (
        <section className="prompt-row">
          <p className="chat-prompt">
            The reply to the user’s <b>“{toOneLine(message, true)}”</b>
            {before > 0 && `, after ${formatPlural(before, "earlier turn")}`}, with the chat template.
          </p>
          <div className="row prompt-actions">
            <Button onClick={() => choose(message)}>Use as plain text</Button>
            <Button
              variant={onStop === null && !isDone ? "primary" : "plain"}
              {...(onStop !== null && { icon: "stop" })}
              onClick={onStop ?? onSubmit}
            >
              {onStop === null ? action : "Stop"}
            </Button>
          </div>
        </section>
      )}
    </>
  );
}
