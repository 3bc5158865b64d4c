/** Home: one interesting expert with its top examples, its effect when turned up, and its routing in a prompt. */

import "./home.css";

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { contextsQuery, expertQuery } from "@/api/queries";
import type { ExpertDetail, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { pickLayerRuns } from "@/components/runs/pick-layer-runs";
import { hasHiddenLayer, methodName } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useUrlState } from "@/hooks/use-url-state";
import { formatCount, formatPercent } from "@/lib/text/format";

import { PAPER_URL } from "@/lib/text/paper";

import { ActivatingContexts } from "./activating-contexts";
import { HOME_PARAMS, HOME_STRENGTH } from "./home-params";
import { generationPrompt, HOME_CONTEXTS, UNRELATED_PROMPT, routingPrompt } from "./home-prompts";
import { PromptRouting } from "./routing/prompt-routing";
import { SteeringDemo } from "./steering/steering-demo";
import { useHomeExpert } from "./use-home-expert";

/** Link to the routing of a prompt through one run of every trained layer. */
function AllLayers({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  const links = usePageLinks();
  const otherRuns = runs.filter(
    ({ language_model: model, layer, status }) =>
      model === run.language_model && layer !== run.layer && status === "finished",
  );
  const layerRuns = pickLayerRuns(run, otherRuns);
  if (layerRuns.length === 0) return null;
  return (
    <>
      {" "}
      <Link className="link" to={links.page("routing", { prompt: UNRELATED_PROMPT, layers: layerRuns.join(",") })}>
        Route a prompt through {layerRuns.length === 1 ? "both" : `all ${layerRuns.length + 1}`} trained layers.
      </Link>
    </>
  );
}

/** How faithful the layer is, if it was evaluated on text that it was not trained on. */
function LossRecovered({ run: { held_out: heldOut } }: { readonly run: RunSummary }) {
  if (heldOut === null || heldOut.seen_text) return null;
  const { value, low, high } = heldOut.loss_recovered;
  return (
    <>
      {" "}
      <Term id="loss_recovered">Loss recovered</Term>: {formatPercent(value, 1)}&nbsp;% (95&nbsp;% interval{" "}
      {formatPercent(low, 1)} to {formatPercent(high, 1)}&nbsp;%, {formatCount(heldOut.tokens)} held-out tokens).
    </>
  );
}

function describeActiveExperts({ has_top_k: hasTopK, k }: RunSummary): string {
  return hasTopK ? `Each token uses ${String(k)} of them.` : "Each token uses those above a threshold.";
}

function Intro({ run }: { readonly run: RunSummary }) {
  return (
    <section className="intro">
      <h1>
        One MLP, replaced by {formatCount(run.num_experts)} experts. {describeActiveExperts(run)}
      </h1>
      <p>
        In an <Term id="mxd">MxD (mixture of decoders)</Term>, experts replace an MLP of a language model (
        <a className="link" href={PAPER_URL}>
          paper
        </a>
        ). A gate activates a few of them on each token, and their outputs add up. Each expert can be inspected and
        edited alone.
      </p>
      <p>
        This run: {methodName(run.method)}, layer {run.layer} of {run.language_model_name}; each expert is{" "}
        {hasHiddenLayer(run) ? "a linear map" : "a single direction"}.
        <LossRecovered run={run} />
        <AllLayers run={run} />
      </p>
    </section>
  );
}

interface SectionsProps {
  readonly run: RunSummary;
  readonly detail: ExpertDetail;
  /** How far the expert is turned up at first. */
  readonly initialStrength: number;
  /** Prompt of the saved session that steers this expert, if any. */
  readonly savedPrompt: string | null;
  readonly onNext: () => void;
}

function Sections({ run, detail, initialStrength, savedPrompt, onNext }: SectionsProps) {
  const [params, setParams] = useUrlState(HOME_PARAMS);
  const { expert } = detail.row;
  const { data } = useInfiniteQuery(contextsQuery(run.name, expert, 0, HOME_CONTEXTS));
  const contexts = data?.pages[0]?.examples ?? [];
  const prompt = params.prompt ?? routingPrompt(contexts);
  const ownPrompt = params.mode === "add" ? savedPrompt : null;
  const steeringPrompt = params.steering_prompt ?? ownPrompt ?? generationPrompt(contexts, params.mode);
  return (
    <div className="home">
      <ActivatingContexts run={run} detail={detail} contexts={contexts} onNext={onNext} />
      <SteeringDemo
        key={`${run.name} ${expert}`}
        run={run.name}
        row={detail.row}
        prompt={steeringPrompt}
        mode={params.mode}
        strength={params.strength ?? (params.mode === "add" ? initialStrength : HOME_STRENGTH[params.mode])}
        onPrompt={(text) => setParams({ steering_prompt: text }, "push")}
        onMode={(mode) => setParams({ mode, strength: null })}
        onStrength={(strength) => setParams({ strength })}
      />
      <PromptRouting
        run={run.name}
        row={detail.row}
        prompt={prompt}
        token={params.token}
        onPrompt={(text) => setParams({ prompt: text, token: null }, "push")}
        onToken={(token) => setParams({ token })}
      />
    </div>
  );
}

function HomeExpert({ expert, ...props }: Omit<SectionsProps, "detail"> & { readonly expert: number }) {
  const { data, error, refetch } = useQuery(expertQuery(props.run.name, expert));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading expert" rows={10} rowHeight={28} />;
  return <Sections {...props} detail={data} />;
}

function IndexedRun({ run }: { readonly run: RunSummary }) {
  const { expert, strength, savedPrompt, error, isPending, another } = useHomeExpert(run.name);
  if (error !== null) return <ErrorState error={error} />;
  if (isPending) return <LoadingState label="Choosing an expert" rows={10} rowHeight={28} />;
  if (expert === null)
    return <EmptyState title="No active experts">No expert is active on any indexed token.</EmptyState>;
  return <HomeExpert run={run} expert={expert} initialStrength={strength} savedPrompt={savedPrompt} onNext={another} />;
}

function UnindexedRun({ run }: { readonly run: RunSummary }) {
  return (
    <EmptyState title="Not indexed yet">
      {run.name} has not been indexed yet. To see what its experts fire on, run:
      <Command text={`mxd index ${run.name} --dataset ${run.text} --tokens 1M`} />
    </EmptyState>
  );
}

export default function HomePage() {
  return (
    <>
      <title>MxD Explorer</title>
      <PageBar crumbs={[{ label: "Home" }]} />
      <WithRun>
        {(run) => (
          <>
            <Intro run={run} />
            {run.indexed_tokens === null ? <UnindexedRun run={run} /> : <IndexedRun run={run} />}
          </>
        )}
      </WithRun>
    </>
  );
}
