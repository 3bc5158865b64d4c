/** Popover that takes a prompt from a top example, by search or from suggestions. */

import { useState } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";

import { messageOf } from "@/api/http/errors";
import type { Context } from "@/api/types";
import { useSearchHits } from "@/components/layout/search/search-results";
import { TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";

import { type ContextChoice, ContextChoices, useSuggestedContexts } from "./context-search";

/** Several experts can share a sequence; as a prompt it is the same. */
function withoutRepeatedSequences(choices: readonly ContextChoice[]): readonly ContextChoice[] {
  const firstBySequence = new Map(choices.toReversed().map((choice) => [choice.context.sequence, choice]));
  return choices.filter((choice) => firstBySequence.get(choice.context.sequence) === choice);
}

interface FromContextProps {
  readonly run: string;
  readonly onChoose: (context: Context) => void;
}

function Choices({ run, onChoose }: FromContextProps) {
  const [text, setText] = useState("");
  const { hits, debounced, query } = useSearchHits(text);
  const suggestions = useSuggestedContexts(run);
  const matches = hits.flatMap(({ expert, example: context }): ContextChoice[] =>
    context === null ? [] : [{ expert, context }],
  );
  const choices = withoutRepeatedSequences(debounced === "" ? suggestions : matches);
  return (
    <>
      <label className="search">
        <Icon name="search" />
        <input
          aria-label="Search examples"
          placeholder="Words in an example"
          // eslint-disable-next-line jsx-a11y/no-autofocus -- the popover is opened in order to search
          autoFocus
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      {query.error !== null && <p className="bad">{messageOf(query.error)}</p>}
      {debounced === "" && suggestions.length > 0 && <p className="dim">Top examples of some experts</p>}
      {debounced !== "" && !query.isPending && matches.length === 0 && <p className="dim">No matching examples</p>}
      <ContextChoices choices={choices} onChoose={onChoose} />
    </>
  );
}

export function FromContext({ run, onChoose }: FromContextProps) {
  return (
    <DialogTrigger>
      <TriggerButton className="btn">From an example</TriggerButton>
      <Popover className="popover from-context" placement="bottom end">
        <Dialog aria-label="Prompt from an example">
          {({ close }) => (
            <Choices
              run={run}
              onChoose={(context) => {
                onChoose(context);
                close();
              }}
            />
          )}
        </Dialog>
      </Popover>
    </DialogTrigger>
  );
}
