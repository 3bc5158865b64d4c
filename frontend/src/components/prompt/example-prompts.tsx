/** Prompts from a run's top examples: on a page without a prompt, and in a popover with a search. */

import { useQueries } from "@tanstack/react-query";
import { useState } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";

import { messageOf } from "@/api/http";
import { topExamplesQuery } from "@/api/queries";
import type { Example } from "@/api/types";
import { useSearchHits } from "@/components/layout/search/search-results";
import { ShadedText } from "@/components/tokens/token-text";
import { useTray } from "@/components/tray/tray-context";
import { TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { useBestExperts } from "@/hooks/use-experts";

interface ExampleChoice {
  readonly expert: number;
  readonly example: Example;
}

const MAX_SUGGESTIONS = 6;
const MAX_PROMPTS = 3;
const MIN_LENGTH = 12;

/** The top example of each expert in the tray, then of the most interpretable others. */
function useSuggestedExamples(run: string): readonly ExampleChoice[] {
  const { edits } = useTray();
  const others = useBestExperts(run).experts.slice(0, MAX_SUGGESTIONS);
  const experts = [...new Set([...edits, ...others].map(({ expert }) => expert))].slice(0, MAX_SUGGESTIONS);
  const queries = useQueries({ queries: experts.map((expert) => topExamplesQuery(run, expert, 1)) });
  return experts.flatMap((expert, i) => (queries[i]?.data?.examples ?? []).map((example) => ({ expert, example })));
}

interface ExamplePromptsProps {
  readonly run: string;
  readonly toPrompt: (example: Example) => string;
  readonly onChoose: (prompt: string) => void;
}

/** Example prompts from the run's top examples, whole sentences first. */
export function ExamplePrompts({ run, toPrompt, onChoose }: ExamplePromptsProps) {
  const all = useSuggestedExamples(run).map(({ example }) => toPrompt(example).trim());
  const sentences = all.filter((prompt) => prompt.length >= MIN_LENGTH && !prompt.includes("\n"));
  const prompts = [...new Set([...sentences, ...all])].slice(0, MAX_PROMPTS);
  return <Examples prompts={prompts} onChoose={onChoose} />;
}

export function Examples({
  title = "Or start from an example:",
  prompts,
  onChoose,
}: Pick<ExamplePromptsProps, "onChoose"> & { readonly title?: string; readonly prompts: readonly string[] }) {
  if (prompts.length === 0) return null;
  return (
    <div className="example-prompts">
      <span className="dim">{title}</span>
      {prompts.map((prompt) => (
        <button key={prompt} type="button" className="btn" onClick={() => onChoose(prompt)}>
          {prompt}
        </button>
      ))}
    </div>
  );
}

interface FromExampleProps {
  readonly run: string;
  readonly onChoose: (example: Example) => void;
}

function Choices({ run, onChoose }: FromExampleProps) {
  const [text, setText] = useState("");
  const { hits, debounced, query } = useSearchHits(text, [run]);
  const suggestions = useSuggestedExamples(run);
  const matches = hits.flatMap(({ expert, example }): ExampleChoice[] =>
    example === null ? [] : [{ expert, example }],
  );
  const shown = debounced === "" ? suggestions : matches;
  // Several experts can share a sequence; as a prompt it is the same.
  const choices = [...new Map(shown.toReversed().map((choice) => [choice.example.sequence, choice])).values()];
  return (
    <>
      <label className="row search">
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
      <ul className="example-choices">
        {choices.toReversed().map(({ expert, example }) => (
          <li key={expert}>
            <button type="button" onClick={() => onChoose(example)}>
              <span className="mono num ink2">{expert}</span>
              <span className="words fades mono ink2">
                <ShadedText example={example} before={8} after={16} />
              </span>
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

/** Popover that takes a prompt from a top example, by search or from suggestions. */
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
