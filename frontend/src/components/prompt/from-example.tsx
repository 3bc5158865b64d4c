/** Popover that takes a prompt from a top example, by search or from suggestions. */

import { useState } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";

import { messageOf } from "@/api/http/errors";
import type { Example } from "@/api/types";
import { useSearchHits } from "@/components/layout/search/search-results";
import { TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";

import { type ExampleChoice, ExampleChoices, useSuggestedExamples } from "./example-search";

/** Several experts can share a sequence; as a prompt it is the same. */
function withoutRepeatedSequences(choices: readonly ExampleChoice[]): readonly ExampleChoice[] {
  const firstBySequence = new Map(choices.toReversed().map((choice) => [choice.example.sequence, choice]));
  return choices.filter((choice) => firstBySequence.get(choice.example.sequence) === choice);
}

interface FromExampleProps {
  readonly run: string;
  readonly onChoose: (example: Example) => void;
}

function Choices({ run, onChoose }: FromExampleProps) {
  const [text, setText] = useState("");
  const { hits, debounced, query } = useSearchHits(text);
  const suggestions = useSuggestedExamples(run);
  const matches = hits.flatMap(({ expert, example }): ExampleChoice[] =>
    example === null ? [] : [{ expert, example }],
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
      <ExampleChoices choices={choices} onChoose={onChoose} />
    </>
  );
}

export function FromExample({ run, onChoose }: FromExampleProps) {
  return (
    <DialogTrigger>
      <TriggerButton className="btn">From an example</TriggerButton>
      <Popover className="popover from-example" placement="bottom end">
        <Dialog aria-label="Prompt from an example">
          {({ close }) => (
            <Choices
              run={run}
              onChoose={(example) => {
                onChoose(example);
                close();
              }}
            />
          )}
        </Dialog>
      </Popover>
    </DialogTrigger>
  );
}
