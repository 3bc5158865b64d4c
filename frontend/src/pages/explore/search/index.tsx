/** Search: experts by words in labels, tokens and examples, by their activations on a passage, or by two texts. */

import "@/components/prompt/prompt.css";
import "./search.css";

import { Link } from "react-router";

import type { RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { WithRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { useUrlState } from "@/hooks/use-url-state";
import { Contrast } from "@/pages/explore/contrast/contrast";

import { PassageSearch } from "./passage-search";
import { SEARCH_PARAMS } from "./search-params";
import { WordSearch } from "./word-search";

function Search({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(SEARCH_PARAMS);
  const links = usePageLinks();
  return (
    <>
      <div className="search-kind">
        <SegmentedControl
          label="What to search by"
          value={params.kind}
          onChange={(kind) => setParams({ kind, position: null }, "push")}
          segments={[
            { value: "words", label: "Words" },
            { value: "passage", label: "A passage" },
            { value: "texts", label: "Two texts" },
          ]}
        />{" "}
        <Link className="link" to={links.page("steering")}>
          I want it to say …
        </Link>
      </div>
      {params.kind === "words" && <WordSearch run={run} text={params.text} onText={(text) => setParams({ text })} />}
      {params.kind === "passage" && <PassageSearch run={run} params={params} setParams={setParams} />}
      {params.kind === "texts" && <Contrast run={run} />}
    </>
  );
}

export default function SearchPage() {
  return (
    <>
      <title>Search · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Search" }]} withSearch={false} />
      <WithRun>{(run) => <Search key={run.name} run={run} />}</WithRun>
    </>
  );
}
