/** Choice between a plain-text and a chat prompt; explains why chat is not available. */

import { useQuery } from "@tanstack/react-query";

import { routingOptionsQuery } from "@/api/queries";
import { SegmentedControl } from "@/components/ui/segmented-control";

interface PromptKindProps {
  readonly run: string;
  readonly isChat: boolean;
  readonly onText: () => void;
  readonly onChat: () => void;
}

export function PromptKind({ run, isChat, onText, onChat }: PromptKindProps) {
  const { data } = useQuery(routingOptionsQuery(run));
  if (data === undefined) return null;
  if (!data.chat && !isChat) return <p className="card-note">{data.no_chat}</p>;
  return (
    <SegmentedControl
      label="Prompt format"
      value={isChat ? "chat" : "text"}
      onChange={(kind) => (kind === "chat" ? onChat() : onText())}
      segments={[
        { value: "text", label: "Text" },
        { value: "chat", label: "Chat" },
      ]}
    />
  );
}
