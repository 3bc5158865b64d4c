/** A chat in two columns: each keeps a history of its own, and one message goes to both. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useLocation } from "react-router";

import { routingOptionsQuery } from "@/api/queries";
import { Examples } from "@/components/prompt/example-prompts";
import { PromptBox } from "@/components/prompt/prompt-box";
import { type ChatTurn, isUnknownChat, originalTurns, steeredTurns } from "@/components/prompt/turns-param";
import { Button } from "@/components/ui/button";
import { EmptyState } from "@/components/ui/states";
import { useShortcut } from "@/hooks/use-shortcut";
import { rememberPrompt } from "@/lib/browser/stores";
import { markdownParts } from "@/lib/text/markdown";
import { lastMessage } from "@/lib/text/kwic";

import type { StateProps } from "./index";
import { Gallery, OpenedSession } from "./sessions";
import { NO_SELECTION, type SteeringParams } from "./steering-params";
import { type bothReplies, isRunning } from "./texts/generation";
import { Streams } from "./texts/streams";

type Turns = SteeringParams["turns"];

/** A chat to which nothing has been sent. */
export const NO_MESSAGE: Turns = [{ role: "user", text: "" }];
/** Short questions that a small model answers in a few sentences. */
const MESSAGES = ["How do I make a good cup of tea?", "What do you like about Mondays?", "Tell me about a river."];

/** The beginning of the reply that a chat prescribes. */
const replyStart = (turns: Turns): string => {
  const last = turns.at(-1);
  return last?.role === "assistant" ? last.text : "";
};

/** The turns with the replies to them; without replies, the turns before the unanswered message. */
export function withReplies(turns: Turns, replies: ReturnType<typeof bothReplies>): Turns {
  const [before, last] = [turns.slice(0, -1), turns.at(-1)];
  if (replies === undefined) return last?.role === "user" ? before : turns;
  const start = replyStart(turns);
  const reply = { role: "assistant" as const, text: start + replies.steered, original: start + replies.original };
  return [...(last?.role === "assistant" ? before : turns), reply];
}

/** The turns of one column before the reply that is generated. */
function History({ turns }: { readonly turns: readonly ChatTurn[] }) {
  return (
    <ol className="chat-history">
      {turns.map(({ role, text }, index) => (
        <li key={index} data-role={role}>
          <span className="sr">{role}: </span>
          {role !== "assistant"
            ? text
            : markdownParts(text).map((part, i) => (
                <span key={i} className={part.style}>
                  {part.text}
                </span>
              ))}
        </li>
      ))}
    </ol>
  );
}

function ChatInput({ state: { generator, params, send, setParams } }: StateProps) {
  const hasTurns = params.turns.some(({ text }) => text !== "");
  const [text, setText] = useState(hasTurns ? "" : params.prompt);
  /** Enter was pressed while both still answered. */
  const [isQueued, setQueued] = useState(false);
  const isGenerating = isRunning(generator.generation);
  const isEmpty = text.trim() === "";
  useShortcut("release", generator.stop, isGenerating);
  const submit = () => {
    if (isEmpty) return;
    setQueued(isGenerating);
    if (!isGenerating) send(text.trim());
  };
  useEffect(() => {
    if (isQueued && !isGenerating && !isEmpty) send(text.trim());
    // eslint-disable-next-line react-hooks/exhaustive-deps -- only the end of the answers sends it
  }, [isGenerating]);
  const startAgain = () => {
    generator.clear();
    rememberPrompt("");
    setParams({ turns: NO_MESSAGE, prompt: "", ...NO_SELECTION }, "push");
  };
  return (
    <section className="prompt-row chat-input">
      <PromptBox
        label="Message to both"
        placeholder="Message to both"
        draft={{ text, setText, commit: submit }}
        onEnter="submit"
      />
      <div className="row prompt-actions">
        {hasTurns && (
          <Button variant="ghost" onClick={startAgain}>
            New chat
          </Button>
        )}
        {isGenerating ? (
          <Button icon="stop" shortcut="release" onClick={generator.stop}>
            Stop
          </Button>
        ) : (
          <Button variant="primary" disabled={isEmpty} onClick={submit}>
            Send<kbd aria-hidden="true">↵</kbd>
          </Button>
        )}
      </div>
      {!hasTurns && <Examples prompts={MESSAGES} onChoose={send} />}
      <p className="dim" role="status">
        {isQueued && isGenerating && "The message is sent after both answers. Esc stops them."}
      </p>
    </section>
  );
}

/** Before the first message. */
function EmptyChat({ state: { run, edits } }: StateProps) {
  const { search } = useLocation();
  const isElsewhere = isUnknownChat(new URLSearchParams(search).get("turns"));
  const title = isElsewhere
    ? "This chat is kept in the browser that wrote it"
    : edits.length === 0
      ? "Add an expert to the tray, then send a message"
      : "Send a message";
  return (
    <div className="steering-empty">
      <EmptyState title={title}>
        {isElsewhere && "A saved session can be opened anywhere. Ask for one, or begin a new chat with these edits. "}
        The original model and the model with the edits of the tray both answer a message. Each keeps its own history.
        {edits.length === 0 &&
          " The tray is empty, so both would give the same answer. A saved chat below brings its own edit."}
      </EmptyState>
      <Gallery run={run} most={6} only="chats" />
    </div>
  );
}

export function ChatView({ state }: StateProps) {
  const { run, params } = state;
  const { data } = useQuery(routingOptionsQuery(run.name));
  const begun = params.turns.filter(({ text }) => text !== "");
  const start = replyStart(begun);
  const history = start === "" ? begun : begun.slice(0, -1);
  return (
    <>
      {data?.chat === false && (
        <p className="no-chat" role="note">
          {data.no_chat}
        </p>
      )}
      <OpenedSession state={state} />
      {begun.length === 0 ? (
        <EmptyChat state={state} />
      ) : (
        <Streams
          state={state}
          prompt={start}
          history={(variant) => (
            <History turns={variant === "baseline" ? originalTurns(history) : steeredTurns(history)} />
          )}
        />
      )}
      <ChatInput
        key={`${params.turns.length} ${lastMessage(params.turns)}`} // empty after a message was sent
        state={state}
      />
    </>
  );
}
