/** The Experts page: an overview figure with selection, and the table. */

import "./experts.css";

import { useMemo } from "react";
import { useNavigate } from "react-router";

import { visitRandomExpert } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { filtersOf } from "@/components/experts/columns";
import { NotIndexed } from "@/components/layout/missing";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { WithRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { useColumns } from "@/hooks/use-experts";
import { useShortcut } from "@/hooks/use-shortcut";
import { useUrlState } from "@/hooks/use-url-state";
import { STEER_PROMPT } from "@/pages/explore/expert/expert-params";

import { boundParams, EXPERTS_PARAMS, type ExpertsView } from "./experts-params";
import { FilterBar } from "./filter-bar";
import { Overview } from "./overview";
import { ExpertsTable, useLargest } from "./table";

function useExpertsView(run: string): ExpertsView {
  const columns = useColumns();
  const filters = useMemo(() => filtersOf(columns), [columns]);
  const [params, setParams] = useUrlState(EXPERTS_PARAMS);
  const [bounds, setBounds] = useUrlState(useMemo(() => boundParams(filters), [filters]));
  // Nearly every index has it, so the order rarely changes when this is known.
  const isSteerable = useLargest(run, "max_activation")?.steerability !== null;
  return { columns, filters, isSteerable, params, setParams, bounds, setBounds };
}

function ExpertsView({ run }: { readonly run: RunSummary }) {
  const view = useExpertsView(run.name);
  const { params, setParams } = view;
  const navigate = useNavigate();
  const links = usePageLinks();
  useShortcut("random", () => void visitRandomExpert(run.name, (expert) => navigate(links.expert(expert))));
  const surprise = () =>
    void visitRandomExpert(run.name, (expert) => navigate(links.expert(expert, { steer: STEER_PROMPT })), "steerable");
  useShortcut("surprise", surprise);
  return (
    <>
      <Overview
        run={run}
        selected={params.lasso}
        onSelected={(lasso) => setParams({ lasso })}
        onFilter={(among) => setParams({ among }, "push")}
      />
      <FilterBar run={run.name} view={view} onSurprise={surprise} />
      <ExpertsTable run={run.name} view={view} />
    </>
  );
}

export default function ExpertsPage() {
  return (
    <>
      <title>Experts · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Experts" }]} />
      <WithRun>{(run) => (run.indexed_tokens === null ? <NotIndexed run={run} /> : <ExpertsView run={run} />)}</WithRun>
    </>
  );
}
