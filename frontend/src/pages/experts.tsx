/** All experts of a run: an overview to pick from, and the table. */

import "./experts.css";

import { useNavigate } from "react-router";

import { fetchRandomExpert } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { Command } from "@/components/command";
import { WithRun } from "@/components/current-run";
import { usePageLinks } from "@/components/links";
import { PageBar } from "@/components/shell/page-bar";
import { useShortcut } from "@/components/shortcuts";
import { EmptyState } from "@/components/states";
import { useUrlState } from "@/url-state";

import { EXPERTS_PARAMS } from "./experts/experts-params";
import { ExpertsTable } from "./experts/experts-table";
import { FilterBar } from "./experts/filter-bar";
import { Overview } from "./experts/overview";

function NotIndexed({ run }: { readonly run: RunSummary }) {
  return (
    <EmptyState title={`Nothing is known of the experts of ${run.name} yet`}>
      One pass over some text tells when each is active, and keeps its contexts:
      <Command text={`mxd index ${run.name} --text ${run.text} --tokens 1M`} />
    </EmptyState>
  );
}

function ExpertsView({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(EXPERTS_PARAMS);
  const navigate = useNavigate();
  const links = usePageLinks();
  useShortcut("random", () => void fetchRandomExpert(run.name).then(({ expert }) => navigate(links.expert(expert))));
  return (
    <>
      <Overview
        run={run}
        view={params.figure}
        onView={(figure) => setParams({ figure })}
        onFilter={(among) => setParams({ among }, "push")}
      />
      <FilterBar run={run.name} params={params} setParams={setParams} />
      <ExpertsTable run={run.name} params={params} setParams={setParams} />
    </>
  );
}

export default function ExpertsPage() {
  return (
    <>
      <title>Experts · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Experts" }]} withSearch={false} />
      <WithRun>{(run) => (run.indexed_tokens === null ? <NotIndexed run={run} /> : <ExpertsView run={run} />)}</WithRun>
    </>
  );
}
