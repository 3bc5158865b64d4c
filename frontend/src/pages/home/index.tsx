/** Home: experts that change a text by a slider, and the ways into the dashboard. */

import { useQueries, useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useMemo } from "react";
import { Link } from "react-router";

import { expertQuery, healthQuery, showcaseQuery, topExamplesQuery } from "@/api/queries";
import type { Example, RunSummary, ShowcaseText, SteeringRequest } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { EXAMPLE_PROMPT, useTourUrl } from "@/components/layout/tour";
import { PromptBox } from "@/components/prompt/prompt-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { useComparedLinks } from "@/components/runs/compared-run";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { pageLinks, usePageLinks } from "@/components/runs/page-links";
import { pickLayerRuns } from "@/components/runs/pick-layer-runs";
import { activeK } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { ShadedText } from "@/components/tokens/shaded-text";
import { useTips } from "@/components/tokens/tip-layer";
import { TokenChip } from "@/components/tokens/token-chip";
import { TokenStrip } from "@/components/tokens/token-strip";
import { Button, LinkButton } from "@/components/ui/button";
import { Command } from "@/components/ui/copyable-command";
import { Icon, type IconName } from "@/components/ui/icon";
import { Slider } from "@/components/ui/slider";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useBestExperts } from "@/hooks/use-best-experts";
import { useDraggedValue } from "@/hooks/use-dragged-value";
import { useShortcut } from "@/hooks/use-shortcut";
import { useUrlState } from "@/hooks/use-url-state";
import { type Edit, formatEdits, newEdit, toHttpEdit } from "@/lib/edits/edits";
import { divergingClass } from "@/lib/scales/colour-scale";
import { formatCount, formatFixed, formatSigned } from "@/lib/text/format";
import type { Piece } from "@/lib/text/kwic";
import { PAPER_URL } from "@/lib/text/paper";
import { deduplicate } from "@/pages/explore/expert/examples/deduplicate-examples";
import { requestEdits } from "@/pages/steer/steering/steering-params";
import { useGeneration } from "@/pages/steer/steering/texts/use-generation";

import { HOME_PARAMS } from "./home-params";

import "@/components/prompt/prompt.css";
import "./home.css";

const EXAMPLES = 3;
/** Several experts often have their strongest examples in one text, which is shown once. */
const FETCHED_EXAMPLES = 12;
/** Tokens of an example before and after its strongest one. */
const BEFORE = 12;
const AFTER = 6;
const MAX_TOKENS = 64;
const STEP = 0.25;
/** Largest strength without stored texts. */
const NO_TEXTS_END = 3;
/** End of the colour scale in nats. */
const SCALE_LIMIT = 4;
const NUMBER_WORDS = ["No", "One", "Two", "Three", "Four", "Five"];

/** Long words around the peak, by which variants of one text are recognised. */
const longWords = ({ tokens, position }: Example) =>
  tokens.slice(Math.max(0, position - BEFORE), position + AFTER).filter((text) => text.length > 8);

/** Strong examples, those without a long word of a stronger one first. */
function varied(examples: readonly Example[]): readonly Example[] {
  const words = new Set<string>();
  const isNew = examples.map((example) => {
    const own = longWords(example);
    const isVariant = own.some((word) => words.has(word));
    for (const word of own) words.add(word);
    return !isVariant;
  });
  return [...examples.filter((_, i) => isNew[i]), ...examples.filter((_, i) => !isNew[i])].slice(0, EXAMPLES);
}

/** The strongest examples of each expert, no two of one text; undefined while loading. */
function useDistinctExamples(run: string, experts: readonly number[]): readonly (readonly Example[])[] | undefined {
  const results = useQueries({ queries: experts.map((expert) => topExamplesQuery(run, expert, FETCHED_EXAMPLES)) });
  if (results.some(({ data }) => data === undefined)) return undefined;
  const texts = new Set<number>();
  return results.map(({ data }) => {
    const chosen = varied(
      deduplicate((data?.examples ?? []).filter(({ sequence }) => !texts.has(sequence))).examples.filter(
        ({ sequence }, i, all) => all.findIndex((one) => one.sequence === sequence) === i,
      ),
    );
    for (const { sequence } of chosen) texts.add(sequence);
    return chosen;
  });
}

interface ExpertCardProps {
  readonly run: string;
  readonly expert: number;
  readonly examples: readonly Example[] | undefined;
}

/** An expert of the text: its label and strongest examples. */
function ExpertCard({ run, expert, examples }: ExpertCardProps) {
  const { data } = useQuery(expertQuery(run, expert));
  if (data === undefined || examples === undefined) return <LoadingState label="Loading expert" rows={4} />;
  const { row } = data;
  return (
    <section className="hero-expert" aria-label={`Expert ${expert}`}>
      <Link to={pageLinks(run).expert(expert)}>
        <span className="mono">{expert}</span>{" "}
        <ExpertLabel label={row.label} automatic={row.automatic} topTokens={row.top_tokens.map(({ text }) => text)} />
      </Link>
      {examples.map((example) => (
        <p key={example.rank}>
          <ShadedText example={example} before={BEFORE} after={AFTER} largest={row.max_activation} />
        </p>
      ))}
    </section>
  );
}

/** The text at a strength: stored, or generated after a change of the prompt or without stored texts. */
function useText(run: string, request: SteeringRequest, edits: readonly Edit[], stored: ShowcaseText | undefined) {
  const { generation, start, stop } = useGeneration(run);
  const strength = edits[0]?.strength ?? 0;
  const isStored = stored !== undefined;
  const text = formatEdits(edits);
  useEffect(() => {
    if (isStored || request.prompt === "") return;
    start({ ...request, edits: edits.map(toHttpEdit), sampling: { ...request.sampling, max_tokens: MAX_TOKENS } });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the edits as text
  }, [isStored, request, text, start]);
  return useMemo(() => {
    if (stored !== undefined) {
      const pieces = stored.tokens.map(({ id, text: characters, delta_log_probability: value }, index): Piece => ({
        index,
        id,
        text: characters,
        value,
      }));
      return { pieces, isBusy: false, failure: null, stop };
    }
    const { status, failure } = generation;
    const pieces = generation[strength === 0 ? "baseline" : "steered"].continuations[0]?.pieces ?? [];
    return { pieces, isBusy: status === "waiting" || status === "streaming", failure, stop };
  }, [stored, generation, strength, stop]);
}

interface StrengthRowProps {
  readonly value: number;
  /** Strengths with a stored text, or else the initial one and the largest. */
  readonly stops: readonly number[];
  readonly onDrag: (strength: number) => void;
  readonly onCommit: (strength: number) => void;
  readonly steeringUrl: string;
}

function StrengthRow({ value, stops, onDrag, onCommit, steeringUrl }: StrengthRowProps) {
  return (
    <div className="hero-slider">
      <div className="hero-track">
        <Slider
          label="Strength of the experts"
          value={value}
          min={0}
          max={stops.at(-1) ?? NO_TEXTS_END}
          step={STEP}
          neutral={0}
          ticks={[0, ...stops].map((at) => ({ at, label: at === 0 ? "Original" : `+${at}` }))}
          onChange={onDrag}
          onChangeEnd={onCommit}
        />
      </div>
      <output>
        {value === 0 ? (
          "Original"
        ) : (
          <>
            +{formatFixed(value, 2)} × <Term id="p99">p99</Term>
          </>
        )}
      </output>
      <LinkButton size="small" to={steeringUrl}>
        Open in Steer
      </LinkButton>
      <RampLegend kind="diverging" low="Token less likely" high="more likely than without the experts" />
    </div>
  );
}

function Why() {
  const compared = useComparedLinks();
  return (
    <p className="hero-why">
      <b>Why experts and not features?</b> A transcoder feature writes one fixed direction; each expert of an{" "}
      <Term id="mxd">MxD</Term> is a{" "}
      <a className="link" href={PAPER_URL}>
        linear map of its own
      </a>
      , so what it writes depends on the token.{" "}
      <Link className="link" to={compared.page("evaluate")}>
        What that costs, and where a transcoder is better.
      </Link>
    </p>
  );
}

/** What an empty text waits for. */
function Waiting() {
  const { data } = useQuery(healthQuery);
  return (
    <span className="hero-waiting" role="status">
      {data?.language_models.length === 0
        ? " Loading the model, which happens once and takes a few seconds."
        : " Reading the prompt."}
    </span>
  );
}

interface SteeredTextProps {
  readonly prompt: string;
  readonly text: ReturnType<typeof useText>;
  /** Null for the original text. */
  readonly shade: ((piece: Piece) => string) | null;
}

function SteeredText({ prompt, text: { pieces, isBusy, failure, stop }, shade }: SteeredTextProps) {
  const tips = useTips();
  // A tooltip goes with its text.
  useEffect(() => tips.hide, [pieces, tips]);
  const isCut = !isBusy && /[^.!?”"]\s*$/.test(pieces.at(-1)?.text ?? "");
  return (
    <div className="hero-text" aria-busy={isBusy}>
      <span className="hero-prompt">{prompt}</span>
      <TokenStrip
        className="hero-tokens"
        label={shade === null ? "Original text" : "Steered text"}
        pieces={pieces}
        shade={shade ?? (() => "")}
        tip={(piece) => (
          <>
            <TokenChip text={piece.text} />
            <dl>
              <dt>Δ log p by the edits</dt>
              <dd>{formatSigned(piece.value ?? 0)} nats</dd>
            </dl>
          </>
        )}
      />
      {isCut && <span className="dim">…</span>}
      {isBusy && pieces.length === 0 && <Waiting />}
      {isBusy && (
        <span className="hero-progress">
          <Button size="small" onClick={stop}>
            Stop
          </Button>{" "}
          {pieces.length} of {MAX_TOKENS} tokens
        </span>
      )}
      {failure !== null && <p role="alert">{failure}</p>}
    </div>
  );
}

/** Line breaks have no area to shade. */
const shadeByChange = (piece: Piece) => (piece.text.trim() === "" ? "" : divergingClass(piece.value ?? 0, SCALE_LIMIT));

interface HeroProps {
  readonly run: RunSummary;
  /** What the experts do, after "Two of 4,096 experts of layer 16". */
  readonly title: string;
  readonly request: SteeringRequest;
  readonly edits: readonly Edit[];
  /** Stored texts by strength; empty if there are none. */
  readonly texts: readonly ShowcaseText[];
}

interface HeroHeadProps extends Pick<HeroProps, "run" | "title"> {
  readonly numEdits: number;
}

function HeroHead({ run, numEdits, title }: HeroHeadProps) {
  return (
    <header>
      <h1>
        {NUMBER_WORDS[numEdits] ?? numEdits} of {formatCount(run.num_experts)} experts of layer {run.layer} {title}.
        Move the slider.
      </h1>
      <p className="ink2">
        The run{" "}
        <Link className="link mono" to={pageLinks(run.name).run(run.name)}>
          {run.name}
        </Link>{" "}
        replaces this MLP of {run.language_model_name} by a <Term id="mxd">Mixture of Decoders</Term>, of which{" "}
        {activeK(run)} experts are active on each token.
      </p>
    </header>
  );
}

/** A text that experts change, with a slider. Stored texts are shown at once; after a change it is generated. */
function Hero({ run: summary, title, request, edits, texts }: HeroProps) {
  const run = summary.name;
  const [params, setParams] = useUrlState(HOME_PARAMS);
  const prompt = params.prompt?.trim() ? params.prompt : (request.prompt ?? "");
  const initial = edits[0]?.strength ?? 0;
  const { shown, drag, commit } = useDraggedValue(params.strength ?? initial, (strength) => setParams({ strength }));
  const draft = usePromptDraft(prompt, (text) => setParams({ prompt: text === request.prompt ? null : text }), null);
  /** Without a prompt it returns to the example. */
  const reset = () => {
    draft.setText(request.prompt ?? "");
    setParams({ prompt: null });
  };
  const changed = useMemo(() => ({ ...request, prompt }), [request, prompt]);
  // While the slider is dragged only stored texts follow; a generation starts on release.
  const stored =
    prompt === request.prompt ? texts.find((text) => Math.abs(text.strength - shown) < STEP / 2) : undefined;
  const strength = stored?.strength ?? params.strength ?? initial;
  const shownEdits = edits.map((edit) => ({ ...edit, strength }));
  const text = useText(run, changed, shownEdits, stored);
  const examples = useDistinctExamples(
    run,
    edits.map(({ expert }) => expert),
  );
  const links = pageLinks(run);
  const stops = texts.flatMap(({ strength: at }) => (at > 0 ? [at] : []));
  return (
    <section className="hero" aria-label="Steering a text">
      <HeroHead run={summary} numEdits={edits.length} title={title} />
      <div className="hero-side">
        {edits.map(({ expert }, i) => (
          <ExpertCard key={expert} run={run} expert={expert} examples={examples?.[i]} />
        ))}
        <p className="ink2">
          <RampLegend kind="sequential" low="Activation 0" high="largest of the expert" />, ↵ line break
        </p>
      </div>
      <div className="hero-main">
        <PromptBox
          label="Prompt to continue"
          placeholder="Type the beginning of a text, then press Enter"
          value={draft.text}
          onChange={draft.setText}
          onSubmit={draft.text.trim() === "" ? reset : draft.commit}
          onOpen="leave-focus"
          onEnter="submit"
        />
        <StrengthRow
          value={shown}
          stops={stops.length > 0 ? stops : [initial, NO_TEXTS_END]}
          onDrag={drag}
          onCommit={commit}
          steeringUrl={links.page("steering", { prompt, edits: formatEdits(shownEdits) })}
        />
        <SteeredText prompt={prompt} text={text} shade={strength === 0 ? null : shadeByChange} />
        <Why />
      </div>
    </section>
  );
}

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
      <Door icon="experts" title="Find an expert" to={links.page("search")}>
        Search by word, by passage, by two texts, or by what the model should say.
      </Door>
      <Door icon="probing" title="Is it faithful?" to={compared.page("evaluate")}>
        Loss, labels and probes beside a transcoder of equal size, with intervals. Also where it loses.
      </Door>
    </nav>
  );
}

/** The run's most interesting expert, if the data folder has no showcase. */
function BestExpert({ run, children }: { readonly run: RunSummary; readonly children: ReactNode }) {
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
    <>
      <Hero
        key={`${run.name} ${expert}`}
        run={run}
        title="changes a text"
        request={{ prompt: EXAMPLE_PROMPT }}
        edits={[newEdit(expert)]}
        texts={[]}
      />
      {children}
    </>
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

/** The hero, and then the rest of the page, which would otherwise be pushed down by it. */
function Content({ run, children }: { readonly run: RunSummary; readonly children: ReactNode }) {
  const { runs } = useCurrentRun();
  const [{ expert }] = useUrlState(HOME_PARAMS);
  const { data, error } = useQuery(showcaseQuery);
  if (error !== null) return <ErrorState error={error} />;
  if (data === undefined) return <LoadingState label="Loading" rows={8} rowHeight={28} />;
  const { showcase } = data;
  const shownRun = runs.find(({ name }) => name === showcase?.session.run);
  if (showcase === null || shownRun === undefined || expert !== null)
    return run.indexed_tokens === null ? (
      <>
        <Unindexed run={run} />
        {children}
      </>
    ) : (
      <BestExpert run={run}>{children}</BestExpert>
    );
  const { steering } = showcase.session;
  return (
    <>
      <Hero
        run={shownRun}
        title={showcase.title}
        request={steering}
        edits={requestEdits(steering.edits ?? [])}
        texts={showcase.texts}
      />
      {children}
    </>
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
            <Content run={run}>
              <Doors run={run} />
              <p className="home-tour">
                First time here? <TourLink />
              </p>
            </Content>
          </div>
        )}
      </WithRun>
    </>
  );
}
