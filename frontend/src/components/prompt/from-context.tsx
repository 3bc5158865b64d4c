/** A prompt taken from a context: search for one, or take one of those offered. */

import { useState } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";

import { messageOf } from "@/api/errors";
import type { Context } from "@/api/types";

import { Icon } from "../icon";
import { useSearchHits } from "../shell/search-results";
import { TriggerButton } from "../trigger-button";
import { type ContextChoice, ContextChoices, useOfferedContexts } from "./context-choices";

/** Many experts have the same sequence among their contexts; as a prompt it is one. */
function distinct(choices: readonly ContextChoice[]): readonly ContextChoice[] {
  const seen = new Map(choices.toReversed().map((choice) => [choice.context.sequence, choice]));
  return choices.filter((choice) => seen.get(choice.context.sequence) === choice);
}

interface FromContextProps {
  readonly run: string;
  readonly onChoose: (context: Context) => void;
}

function Choices({ run, onChoose }: FromContextProps) {
  const [text, setText] = useState("");
  const { hits, settled, query } = useSearchHits(text);
  const offered = useOfferedContexts(run);
  const found = hits.flatMap(({ expert, context }): ContextChoice[] => (context === null ? [] : [{ expert, context }]));
  const choices = distinct(settled === "" ? offered : found);
  return (
    <>
      <label className="search">
        <Icon name="search" />
        <input
          aria-label="Search contexts"
          placeholder="Words in a context"
          // eslint-disable-next-line jsx-a11y/no-autofocus -- it was opened in order to search
          autoFocus
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      {query.error !== null && <p className="bad">{messageOf(query.error)}</p>}
      {settled === "" && offered.length > 0 && <p className="dim">The strongest contexts of some experts</p>}
      {settled !== "" && !query.isPending && found.length === 0 && <p className="dim">No context has these words</p>}
      <ContextChoices choices={choices} onChoose={onChoose} />
    </>
  );
}

export function FromContext({ run, onChoose }: FromContextProps) {
  return (
    <DialogTrigger>
      <TriggerButton className="btn">From a context</TriggerButton>
      <Popover className="popover from-context" placement="bottom end">
        <Dialog aria-label="Prompt from a context">
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
