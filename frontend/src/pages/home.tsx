/** Home: one expert worth seeing, where it fires, a prompt routed through it, and what turning it up changes. */

import "./home.css";

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { contextsQuery, expertQuery } from "@/api/queries";
import type { ExpertDetail, RunSummary } from "@/api/types";
import { Command } from "@/components/command";
import { useCurrentRun, WithRun } from "@/components/current-run";
import { usePageLinks } from "@/components/links";
import { oneOfEachLayer } from "@/components/one-of-each-layer";
import { hasHidden, layersInWords, shortSource } from "@/components/run-words";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";
import { FIRST_STRENGTH } from "@/lib/edits";
import { formatCount } from "@/lib/format";
import { useUrlState } from "@/url-state";

import { Fires } from "./home/fires";
import { generationPrompt, HOME_CONTEXTS, PLAIN_PROMPT, routingPrompt } from "./home/home-prompts";
import { HOME_PARAMS } from "./home/home-params";
import { InPrompt } from "./home/in-prompt";
import { TurnUp } from "./home/turn-up";
import { useHomeExpert } from "./home/use-home-expert";

/** The way of a text through every layer that is fitted. */
function AllLayers({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  const links = usePageLinks();
  const beside = runs.filter(
    ({ language_model: model, layer, last_layer: last, status }) =>
      model === run.language_model && (last < run.layer || layer > run.last_layer) && status === "finished",
  );
  const others = oneOfEachLayer(run, beside);
  if (others.length === 0) return null;
  return (
    <>
      {" "}
      <Link className="link" to={links.page("routing", { prompt: PLAIN_PROMPT, layers: others.join(",") })}>
        See a prompt go through {others.length === 1 ? "both" : `all ${others.length + 1}`} fitted layers.
      </Link>
    </>
  );
}

function howManyMlps({ layer, last_layer: last }: RunSummary): string {
  return layer === last ? "One MLP" : `${last - layer + 1} MLPs`;
}

function howManyAToken({ has_top_k: hasTopK, k }: RunSummary): string {
  return hasTopK ? `Each token uses ${String(k)} of them.` : "A token uses those that its gate lets through.";
}

function Intro({ run }: { readonly run: RunSummary }) {
  return (
    <section className="intro">
      <h1>
        {howManyMlps(run)}, written as {formatCount(run.num_experts)} experts. {howManyAToken(run)}
      </h1>
      <p>
        {run.layer === run.last_layer ? "This is" : "These are"} {layersInWords(run)} of{" "}
        {shortSource(run.language_model)}, and every expert is {hasHidden(run) ? "a full linear map" : "one direction"}.
        {run.indexed_tokens !== null &&
          " Here is one: what it fires on, where it fires in a prompt, and what changes when you turn it up."}
        <AllLayers run={run} />
      </p>
    </section>
  );
}

interface BandsProps {
  readonly run: RunSummary;
  readonly detail: ExpertDetail;
  /** How far the expert is turned up at first. */
  readonly firstStrength: number;
  readonly onAnother: () => void;
}

function Bands({ run, detail, firstStrength, onAnother }: BandsProps) {
  const [params, setParams] = useUrlState(HOME_PARAMS);
  const { expert } = detail.row;
  const { data } = useInfiniteQuery(contextsQuery(run.name, expert, 0, HOME_CONTEXTS));
  const contexts = data?.pages[0]?.contexts ?? [];
  const prompt = params.prompt ?? routingPrompt(contexts);
  const ask = params.ask ?? generationPrompt(contexts, params.mode);
  return (
    <div className="home">
      <Fires detail={detail} contexts={contexts} onAnother={onAnother} />
      <InPrompt
        run={run.name}
        row={detail.row}
        prompt={prompt}
        token={params.token}
        onPrompt={(text) => setParams({ prompt: text, token: null }, "push")}
        onToken={(token) => setParams({ token })}
      />
      <TurnUp
        key={`${run.name} ${expert}`}
        run={run.name}
        row={detail.row}
        prompt={ask}
        mode={params.mode}
        strength={params.strength ?? (params.mode === "add" ? firstStrength : FIRST_STRENGTH[params.mode])}
        onPrompt={(text) => setParams({ ask: text }, "push")}
        onMode={(mode) => setParams({ mode, strength: null })}
        onStrength={(strength) => setParams({ strength })}
      />
    </div>
  );
}

function HomeExpert({ expert, ...props }: Omit<BandsProps, "detail"> & { readonly expert: number }) {
  const { data, error, refetch } = useQuery(expertQuery(props.run.name, expert));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading an expert" rows={10} rowHeight={28} />;
  return <Bands {...props} detail={data} />;
}

function Indexed({ run }: { readonly run: RunSummary }) {
  const { expert, strength, error, isPending, another } = useHomeExpert(run.name);
  if (error !== null) return <ErrorState error={error} />;
  if (isPending) return <LoadingState label="Choosing an expert" rows={10} rowHeight={28} />;
  if (expert === null) return <EmptyState title="No expert is active">Not one, on any indexed token.</EmptyState>;
  return <HomeExpert run={run} expert={expert} firstStrength={strength} onAnother={another} />;
}

function NotIndexed({ run }: { readonly run: RunSummary }) {
  return (
    <EmptyState title="No contexts yet">
      What the experts of {run.name} fire on is not known before one pass over some text:
      <Command text={`mxd index ${run.name} --text ${run.text} --tokens 1M`} />
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
            {run.indexed_tokens === null ? <NotIndexed run={run} /> : <Indexed run={run} />}
          </>
        )}
      </WithRun>
    </>
  );
}
