/** Search: experts by words in labels, tokens and examples, by their activations on a passage, or by two texts. */

import "@/components/prompt/prompt.css";
import "@/pages/steer/steering/find/find.css";
import "./search.css";

import { Navigate, useLocation } from "react-router";

import type { RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { PromptBox, usePromptDraft } from "@/components/prompt/prompt-box";
import { WithRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { Button, LinkButton } from "@/components/ui/button";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { EmptyState } from "@/components/ui/states";
import { useUrlState } from "@/hooks/use-url-state";
import { Contrast } from "./contrast";
import { FindPane } from "@/pages/steer/steering/find/find-pane";
import { STEERING_PARAMS } from "@/pages/steer/steering/steering-params";

import { PassageSearch, SEARCH_KINDS, SEARCH_PARAMS } from "./passage-search";
import { WordSearch } from "./word-search";

/** Offered while nothing is wanted. */
const EFFECT_EXAMPLE = { prompt: "For breakfast I like to eat", wanted: "bread" };

/** Longer texts are passages. */
const isWords = (text: string) => text.trim().split(/\s+/).length <= 4;

/** Experts that make a text follow a prompt. Steer has the same search beside the steered text. */
function EffectSearch({ run, words }: { readonly run: RunSummary; readonly words: string }) {
  const [params, setParams] = useUrlState(STEERING_PARAMS);
  const links = usePageLinks();
  const draft = usePromptDraft(params.prompt, (prompt) => setParams({ prompt }), null);
  const { wanted, unwanted } = params;
  return (
    <>
      <section className="prompt-row">
        <PromptBox label="Prompt" placeholder="The beginning of a text" draft={draft} onEnter="submit" />
        <div className="row prompt-actions">
          <LinkButton to={links.page("steering", { prompt: draft.text, wanted, unwanted })}>Open in Steer</LinkButton>
        </div>
      </section>
      <FindPane
        key={wanted + unwanted}
        {...{ run, params, setParams }}
        prompt={draft.text}
        commit={draft.commit}
        suggested={words}
      />
      {wanted + unwanted === "" && (
        <EmptyState title="Type the beginning of a text, and what should follow">
          <p>The experts of all layers that make it more probable are predicted, then measured in the model.</p>
          <Button onClick={() => setParams(EFFECT_EXAMPLE, "push")}>Search for an example</Button>
        </EmptyState>
      )}
    </>
  );
}

function Search({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(SEARCH_PARAMS);
  return (
    <>
      <div className="search-kind">
        <SegmentedControl
          label="What to search by"
          value={params.kind}
          onChange={(kind) => {
            // Words may be a passage, or wanted; a passage is neither.
            const text = kind === "words" && !isWords(params.text) ? "" : params.text;
            setParams({ kind, text, position: null }, "push");
          }}
          segments={segmentsOf(SEARCH_KINDS)}
        />
      </div>
      {params.kind === "words" && <WordSearch run={run} params={params} setParams={setParams} />}
      {params.kind === "passage" && <PassageSearch run={run} params={params} setParams={setParams} />}
      {params.kind === "texts" && <Contrast run={run} />}
      {params.kind === "effect" && <EffectSearch run={run} words={isWords(params.text) ? params.text : ""} />}
    </>
  );
}

export default function SearchPage() {
  const query = new URLSearchParams(useLocation().search);
  // What people type by hand.
  const text = query.get("q");
  if (text !== null) {
    query.delete("q");
    query.set("text", text);
    return <Navigate replace to={{ search: query.toString() }} />;
  }
  return (
    <>
      <title>Search · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Search" }]} />
      <WithRun>{(run) => <Search key={run.name} run={run} />}</WithRun>
    </>
  );
}
