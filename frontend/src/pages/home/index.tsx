/** Home: experts that change a text by a slider, and the ways into the dashboard. */

import "./home.css";

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { showcaseQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { EXAMPLE_PROMPT, useTourUrl } from "@/components/layout/tour";
import { useComparedLinks } from "@/components/runs/compared-run";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { pickLayerRuns } from "@/components/runs/pick-layer-runs";
import { Icon, type IconName } from "@/components/ui/icon";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useBestExperts } from "@/hooks/use-best-experts";
import { useShortcut } from "@/hooks/use-shortcut";
import { useUrlState } from "@/hooks/use-url-state";
import { newEdit } from "@/lib/edits/edits";
import { requestEdits } from "@/pages/steer/steering/steering-params";

import { Hero } from "./hero";
import { HOME_PARAMS } from "./home-params";

function Door({ icon, to, title, children }: DoorProps) {
  return (
    <Link className="door" to={to}>
      <b>
        <Icon name={icon} /> {title}
      </b>
      <span>{children}</span>
    </Link>
  );
}

interface DoorProps {
  readonly icon: IconName;
  readonly to: string;
  readonly title: string;
  readonly children: ReactNode;
}

function Doors({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  const links = usePageLinks();
  const compared = useComparedLinks();
  const ofModel = runs.filter(
    ({ language_model: model, status }) => model === run.language_model && status === "finished",
  );
  const others = pickLayerRuns(
    run,
    ofModel.filter(({ layer }) => layer !== run.layer),
  );
  return (
    <nav className="doors" aria-label="Where to begin">
      <Door
        icon="routing"
        title="Follow a sentence"
        to={links.page(others.length > 0 ? "layers" : "routing", { prompt: EXAMPLE_PROMPT })}
      >
        Type a text and watch which experts each token uses{others.length > 0 && `, in ${others.length + 1} layers`}.
      </Door>
      <Door icon="experts" title="Find an expert" to={links.page("experts")}>
        Search by word, by passage, by two texts, or by what the model should say.
      </Door>
      <Door icon="probing" title="Is it faithful?" to={compared.page("evaluate")}>
        Loss, labels and probes beside a transcoder of equal size, with intervals. Also where it loses.
      </Door>
    </nav>
  );
}

/** The run's most interesting expert, if the data folder has no showcase. */
function BestExpert({ run }: { readonly run: RunSummary }) {
  const { experts, isPending, error } = useBestExperts(run.name);
  const [params, setParams] = useUrlState(HOME_PARAMS);
  const expert = params.expert ?? experts[0]?.expert;
  useShortcut("random", () => {
    const index = experts.findIndex((row) => row.expert === expert);
    const next = experts[(index + 1) % experts.length];
    if (next !== undefined) setParams({ expert: next.expert, prompt: null, strength: null }, "push");
  });
  if (error !== null) return <ErrorState error={error} />;
  if (expert === undefined && isPending) return <LoadingState label="Choosing an expert" rows={8} rowHeight={28} />;
  if (expert === undefined)
    return <EmptyState title="No active experts">No expert is active on any indexed token.</EmptyState>;
  return (
    <Hero
      key={`${run.name} ${expert}`}
      run={run.name}
      numExperts={run.num_experts}
      title="changes a text"
      request={{ prompt: EXAMPLE_PROMPT }}
      edits={[newEdit(expert)]}
      texts={[]}
    />
  );
}

function Unindexed({ run }: { readonly run: RunSummary }) {
  return (
    <EmptyState title="Not indexed yet">
      {run.name} has not been indexed yet. To see what its experts fire on, run:
      <Command text={`mxd index ${run.name} --dataset ${run.text} --tokens 1M`} />
    </EmptyState>
  );
}

function Content({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  const [{ expert }] = useUrlState(HOME_PARAMS);
  const { data, error } = useQuery(showcaseQuery);
  if (error !== null) return <ErrorState error={error} />;
  if (data === undefined) return <LoadingState label="Loading" rows={8} rowHeight={28} />;
  const { showcase } = data;
  const shownRun = runs.find(({ name }) => name === showcase?.session.run);
  if (showcase === null || shownRun === undefined || expert !== null)
    return run.indexed_tokens === null ? <Unindexed run={run} /> : <BestExpert run={run} />;
  const { steering } = showcase.session;
  return (
    <Hero
      run={shownRun.name}
      numExperts={shownRun.num_experts}
      title={showcase.title}
      request={steering}
      edits={requestEdits(steering.edits ?? [])}
      texts={showcase.texts}
    />
  );
}

function TourLink() {
  const tourUrl = useTourUrl();
  return (
    <Link className="link" to={tourUrl(1)}>
      Take the tour: six steps, two minutes
    </Link>
  );
}

export default function HomePage() {
  return (
    <>
      <title>MxD Explorer</title>
      <PageBar crumbs={[{ label: "Home" }]} />
      <WithRun>
        {(run) => (
          <div className="home">
            <Content run={run} />
            <Doors run={run} />
            <p className="home-tour">
              First time here? <TourLink />
            </p>
          </div>
        )}
      </WithRun>
    </>
  );
}
