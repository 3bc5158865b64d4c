/** Whether a prompt is a text or a chat; says why where it cannot be one. */

import { useQuery } from "@tanstack/react-query";

import { liveQuery } from "@/api/queries";

import { Segmented } from "../segmented";

interface PromptKindProps {
  readonly run: string;
  readonly isChat: boolean;
  readonly onText: () => void;
  readonly onChat: () => void;
}

export function PromptKind({ run, isChat, onText, onChat }: PromptKindProps) {
  const { data } = useQuery(liveQuery(run));
  if (data === undefined) return null;
  if (!data.chat && !isChat) return <p className="card-note">{data.no_chat}</p>;
  return (
    <Segmented
      label="The prompt is"
      value={isChat ? "chat" : "text"}
      onChange={(kind) => (kind === "chat" ? onChat() : onText())}
      segments={[
        { value: "text", label: "Text" },
        { value: "chat", label: "Chat" },
      ]}
    />
  );
}
