/** Home: experts that change a text by a slider, and the ways into the dashboard. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useMemo, useState } from "react";
import { Link } from "react-router";

import { expertQuery, healthQuery, showcaseQuery, topExamplesQuery } from "@/api/queries";
import type { RunSummary, ShowcaseText, SteeringRequest, Variant } from "@/api/types";
import { ExpertLabel, isWeak } from "@/components/experts/expert-link";
import { NotIndexed } from "@/components/layout/missing";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { EXAMPLE_PROMPT, useTourUrl } from "@/components/layout/tour";
import { PromptBox } from "@/components/prompt/prompt-box";
import { pageLinks, pickLayerRuns, useComparedLinks, usePageLinks } from "@/components/runs/page-links";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { activeK } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { ChangeTip } from "@/components/tokens/token-chip";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { ShadedText, TokenStrip } from "@/components/tokens/token-text";
import { hideTip } from "@/components/tokens/tip-layer";
import { Button, LinkButton } from "@/components/ui/button";
import { Icon, type IconName } from "@/components/ui/icon";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { Slider } from "@/components/ui/slider";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useBestExperts } from "@/hooks/use-experts";
import { useDraggedValue } from "@/hooks/use-values";
import { useShortcut } from "@/hooks/use-shortcut";
import { numberParam, textParam, useUrlState } from "@/hooks/use-url-state";
import { rememberPrompt } from "@/lib/browser/stores";
import { type Edit, formatEdits, newEdit, toHttpEdit } from "@/lib/edits/edits";
import { divergingClass, SCALE_LIMIT } from "@/lib/scales/colour-scale";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";
import type { Piece } from "@/lib/text/kwic";
import { PAPER_URL } from "@/lib/text/paper";
import { requestEdits } from "@/pages/steer/steering/steering-params";
import { type Generation, isRunning, storedGeneration, useGeneration } from "@/pages/steer/steering/texts/generation";

import "@/components/prompt/prompt.css";
import "./home.css";

const HOME_PARAMS = {
  /** Prompt to continue; by default that of the shown session. */
  prompt: textParam(null),
  /** Strength of every edit. */
  strength: numberParam(null, { min: 0, max: 4 }),
  /** An expert to show instead of the session. */
  expert: numberParam(null, { min: 0 }),
};
const EXAMPLES = 3;
/** Tokens of an example before and after its strongest one. */
const BEFORE = 12;
const AFTER = 6;
const MAX_TOKENS = 64;
const STEP = 0.5;
/** Largest strength without stored texts. */
const NO_TEXTS_END = 3;
const NUMBER_WORDS = ["No", "One", "Two", "Three", "Four", "Five"];

/** An expert of the text: its label and its strongest examples. */
function ExpertCard({ run, expert }: { readonly run: string; readonly expert: number }) {
  const { data } = useQuery(expertQuery(run, expert));
  const { data: top } = useQuery(topExamplesQuery(run, expert, EXAMPLES));
  if (data === undefined || top === undefined) return <LoadingState label="Loading expert" rows={4} />;
  const { row } = data;
  return (
    <section className="stack hero-expert" aria-label={`Expert ${expert}`}>
      <div className="row wrap">
        <Link to={pageLinks(run).expert(expert)}>
          <span className="mono">{expert}</span>{" "}
          <ExpertLabel label={row.label} automatic={row.automatic} topTokens={row.top_tokens.map(({ text }) => text)} />
        </Link>
        {row.label !== null && <span className="dim">user label, not tested</span>}
        {isWeak(row.label, row.automatic) && <Term id="weak_label">weak label</Term>}
      </div>
      {top.examples.map((example) => (
        <p key={example.rank}>
          <ShadedText example={example} before={BEFORE} after={AFTER} largest={row.max_activation} />
        </p>
      ))}
    </section>
  );
}

/** Both texts at a strength: stored, or generated after a change of the prompt or without stored texts. */
function useTexts(run: string, request: SteeringRequest, edits: readonly Edit[], stored: Generation | undefined) {
  const { generation, start, stop } = useGeneration(run);
  const isStored = stored !== undefined;
  const text = formatEdits(edits);
  useEffect(() => {
    if (isStored || request.prompt === "") return;
    start({ ...request, edits: edits.map(toHttpEdit), sampling: { ...request.sampling, max_tokens: MAX_TOKENS } });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the edits as text
  }, [isStored, request, text, start]);
  // The prompt follows to other pages once the model has read it, so one that is too long does not.
  const isRead = !isStored && generation.status === "done";
  useEffect(() => {
    if (isRead) rememberPrompt(request.prompt ?? "");
  }, [isRead, request.prompt]);
  return { generation: stored ?? generation, stop };
}

/** Without the token that ends a text; none while the texts are still those of another prompt or strength. */
function piecesOf(generation: Generation, variant: Variant): readonly Piece[] {
  if (generation.isOutdated) return [];
  const { tokens = [], pieces = [] } = generation[variant].continuations[0] ?? {};
  return pieces.filter((_, i) => tokens[i]?.reason !== "end-of-text");
}

/** What experts can do and features cannot, and how much of it the shown one does. */
function Why({ run, expert }: { readonly run: string; readonly expert: number }) {
  const compared = useComparedLinks();
  const { data } = useQuery(expertQuery(run, expert));
  return (
    <p className="hero-why">
      <b>Why experts and not features?</b> A transcoder feature writes one fixed direction; each expert of an{" "}
      <Term id="mxd">MxD</Term> is a{" "}
      <a className="link" href={PAPER_URL}>
        linear map of its own
      </a>
      , so what it writes can depend on the token.{" "}
      {data?.ablation != null && (
        <>
          Of the output of expert {expert}, {formatPercent(1 - data.ablation.input_dependence, 0)}&nbsp;% is in one
          direction (<Term id="input_dependence">input dependence</Term>{" "}
          {formatPercent(data.ablation.input_dependence, 0)}&nbsp;%).{" "}
        </>
      )}
      <Link className="link" to={compared.page("evaluate")}>
        What that costs, and where a transcoder is better.
      </Link>
    </p>
  );
}

type HeroTextsProps = ReturnType<typeof useHero>["texts"];

/** After a text that ends within a sentence. */
const Cut = ({ text }: { readonly text: string }) =>
  /[^.!?”"\s]\s*$/.test(text) ? <span className="dim">…</span> : null;

function SteeredText({ prompt, generation, stop, strength }: HeroTextsProps) {
  const pieces = useMemo(() => piecesOf(generation, strength === 0 ? "baseline" : "steered"), [generation, strength]);
  const isBusy = isRunning(generation);
  const { failure } = generation;
  const { data: health } = useQuery(healthQuery);
  // A tooltip goes with its text.
  useEffect(() => hideTip, [pieces]);
  return (
    <section className="hero-text" aria-label="With its experts" aria-busy={isBusy}>
      <h2>
        {strength === 0 ? "No change" : `Steered, +${strength} × `}
        {strength > 0 && <Term id="p99">p99</Term>}
      </h2>
      {failure !== null && <p role="alert">{failure}</p>}
      {(failure === null || pieces.length > 0) && <span className="dim">{prompt}</span>}
      <TokenStrip
        className="hero-tokens"
        label={strength === 0 ? "Original text" : "Steered text"}
        pieces={pieces}
        shade={strength === 0 ? () => "" : shadeByChange}
        tip={(piece) => <ChangeTip piece={piece} />}
      />
      {!isBusy && <Cut text={pieces.at(-1)?.text ?? ""} />}
      {isBusy && (
        <span className="row hero-progress" role="status">
          <progress {...(pieces.length > 0 && { value: pieces.length / MAX_TOKENS })} />
          {pieces.length > 0
            ? `${pieces.length} of ${MAX_TOKENS} tokens`
            : health?.language_models.length === 0
              ? "Loading the model, which happens once and takes a few seconds"
              : "Reading the prompt"}
          <Button size="small" icon="stop" onClick={stop}>
            Stop
          </Button>
        </span>
      )}
    </section>
  );
}

/** Line breaks have no area to shade. */
const shadeByChange = (piece: Piece) => (piece.text.trim() === "" ? "" : divergingClass(piece.value ?? 0, SCALE_LIMIT));

interface HeroProps {
  readonly run: RunSummary;
  /** What the experts do, after "Two of its experts". */
  readonly title: string;
  readonly request: SteeringRequest;
  readonly edits: readonly Edit[];
  /** Random experts of which there are texts, too. */
  readonly controls?: readonly number[];
  /** Stored texts by strength; empty if there are none. */
  readonly texts: readonly ShowcaseText[];
  /** The doors. */
  readonly children: ReactNode;
}

function HeroHead({ run, edits, title }: HeroProps) {
  return (
    <header>
      <p className="ink2">
        A <Term id="mxd">Mixture of Decoders</Term> replaces the MLP of layer {run.layer} of {run.language_model_name}:{" "}
        {formatCount(run.num_experts)} experts, {activeK(run)} active on each token.
      </p>
      <h1>
        {NUMBER_WORDS[edits.length] ?? edits.length} of its experts {title}. Move the slider.
      </h1>
    </header>
  );
}

/** Strength and prompt of the hero, and the text that they give. */
function useHero({ run, request, edits, texts, controls = [] }: HeroProps) {
  const [params, setParams] = useUrlState(HOME_PARAMS);
  const prompt = params.prompt?.trim() ? params.prompt : (request.prompt ?? "");
  const initial = texts.findLast((text) => text.is_fluent)?.strength ?? edits[0]?.strength ?? 0;
  const slider = useDraggedValue(params.strength ?? initial, (strength) => setParams({ strength }));
  const [typed, setTyped] = useState({ prompt, text: prompt });
  const draft = typed.prompt === prompt ? typed.text : prompt;
  const setDraft = (text: string) => setTyped({ prompt, text });
  /** Without a prompt it returns to the example. */
  const submit = () => {
    const isExample = draft.trim() === "" || draft === request.prompt;
    setDraft(draft.trim() === "" ? prompt : draft);
    setParams({ prompt: isExample ? null : draft });
  };
  const changed = useMemo(() => ({ ...request, prompt }), [request, prompt]);
  // While the slider is dragged only stored texts follow; a generation starts on release.
  const at = texts.find((text) => Math.abs(text.strength - slider.shown) < STEP / 2);
  const stored = prompt === request.prompt ? at : undefined;
  const [original] = texts;
  const shown = useMemo(
    () => stored && original && storedGeneration({ baseline: [original.tokens], steered: [stored.tokens] }),
    [stored, original],
  );
  const strength = stored?.strength ?? params.strength ?? initial;
  const shownEdits = edits.map((edit) => ({ ...edit, strength }));
  const generated = useTexts(run.name, changed, shownEdits, shown);
  const stops = texts.flatMap((text) => (text.strength > 0 ? [text.strength] : []));
  return {
    /** `stored`: the text that is shown, with what is known of it; `isOutdated`: another prompt is typed. */
    texts: { ...generated, prompt, strength, stored, controls, isOutdated: draft !== prompt },
    at,
    slider,
    draft: { text: draft, setText: setDraft, commit: submit },
    shownEdits,
    stops: stops[0] ? stops : [initial, NO_TEXTS_END],
  };
}

/** What a strength costs: fluency of the shown text, and side effects. */
function Price({ at, stored }: Record<"at" | "stored", ShowcaseText | undefined>) {
  return (
    <p className="hero-price">
      {at?.price && (
        <>
          <span title={at.price.figures}>{at.price.verdict}</span>{" "}
        </>
      )}
      {stored?.perplexity_ratio != null && (
        <span className={stored.is_fluent ? "dim" : "bad"}>
          <Term id="perplexity_ratio">Perplexity</Term> of this text ×&nbsp;{formatFixed(stored.perplexity_ratio, 1)}
          {!stored.is_fluent && ", above the limit"}
        </span>
      )}
    </p>
  );
}

/** The text without edits, which is there at every strength, or that of a random expert, beside the steered one. */
function HeroTexts(props: HeroTextsProps) {
  const { prompt, generation, stored, controls } = props;
  const [beside, setBeside] = useState<"original" | "random">("original");
  const random = beside === "random" && stored?.random ? stored.random : null;
  const text =
    random ??
    piecesOf(generation, "baseline")
      .map((piece) => piece.text)
      .join("");
  return (
    <div className="hero-texts" data-outdated={props.isOutdated || undefined}>
      <aside className="hero-text" aria-label={random === null ? "Original" : "Random expert"}>
        {stored === undefined || controls.length === 0 ? (
          <h2>Original</h2>
        ) : (
          <SegmentedControl
            label="Text to compare with"
            value={beside}
            onChange={setBeside}
            segments={segmentsOf({
              original: "Original",
              random: `Random expert ${controls.join(", ")}, +${stored.strength}`,
            })}
          />
        )}
        <span className="dim">{prompt}</span>
        {text}
        <Cut text={text} />
      </aside>
      <SteeredText {...props} />
    </div>
  );
}

/** The colours, pages that continue the texts, and the run of the text, to which the menu may be set. */
function HeroLegend({ run, texts }: { readonly run: string; readonly texts: Readonly<Record<string, string>> }) {
  const { name } = useCurrentRun();
  return (
    <div className="row wrap hero-legend ink2">
      <RampLegend kind="diverging" low="Less likely" high="more likely" />
      <span className="grow" />
      <LinkButton size="small" to={pageLinks(run).page("steering", texts)}>
        Open in Steer
      </LinkButton>
      <LinkButton size="small" to={pageLinks(run).page("strength", texts)}>
        Strength sweep
      </LinkButton>
      <span>
        Run <span className="mono">{run}</span>
        {name !== run && (
          <>
            {" "}
            ·{" "}
            <Link className="link" to={pageLinks(run).page("home")}>
              use this run
            </Link>
          </>
        )}
      </span>
    </div>
  );
}

/** A text that experts change, with a slider. Stored texts are shown at once; after a change it is generated. */
function Hero(props: HeroProps) {
  const { run, edits } = props;
  const { texts, at, slider, draft, shownEdits, stops } = useHero(props);
  return (
    <section className="hero" aria-label="Steering a text">
      <HeroHead {...props} />
      <div className="stack hero-side">
        <p className="row wrap ink2">
          <RampLegend kind="sequential" low="Activation 0" high="largest" />
          <span>↵ is a line break</span>
        </p>
        {edits.map(({ expert }) => (
          <ExpertCard key={expert} run={run.name} expert={expert} />
        ))}
        {props.children}
      </div>
      <div className="stack hero-main">
        <div className="row">
          <PromptBox
            label="Prompt to continue"
            placeholder="Type the beginning of a text, then press Enter"
            draft={draft}
            onOpen="leave-focus"
            onEnter="submit"
          />
          <Button variant={texts.isOutdated ? "primary" : "plain"} disabled={!texts.isOutdated} onClick={draft.commit}>
            Generate
          </Button>
        </div>
        <div className="hero-track">
          <Slider
            label="Strength of the experts"
            value={slider.shown}
            min={0}
            max={stops.at(-1) ?? NO_TEXTS_END}
            step={STEP}
            neutral={0}
            ticks={[0, ...stops].map((at) => ({ at, label: at === 0 ? "Original" : `+${at}` }))}
            onChange={slider.drag}
            onChangeEnd={slider.commit}
          />
          {props.texts.length > 0 && <Price at={at} stored={texts.stored} />}
        </div>
        <HeroTexts {...texts} />
        <HeroLegend run={run.name} texts={{ prompt: texts.prompt, edits: formatEdits(shownEdits) }} />
        {edits[0] !== undefined && <Why run={run.name} expert={edits[0].expert} />}
      </div>
    </section>
  );
}

interface DoorProps {
  readonly icon: IconName;
  readonly to: string;
  readonly title: string;
  readonly children: ReactNode;
}

function Door({ icon, to, title, children }: DoorProps) {
  return (
    <Link className="stack door" to={to}>
      <b className="row">
        <Icon name={icon} /> {title}
      </b>
      <span>{children}</span>
    </Link>
  );
}

/** The ways into the dashboard. */
function Doors({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  const links = usePageLinks();
  const compared = useComparedLinks();
  const isOther = ({ language_model: model, status, layer }: RunSummary) =>
    model === run.language_model && status === "finished" && layer !== run.layer;
  const layers = 1 + pickLayerRuns(run, runs.filter(isOther)).length;
  return (
    <nav className="doors" aria-label="Where to begin">
      <Door
        icon="routing"
        title="Follow a sentence"
        to={links.page(layers > 1 ? "layers" : "routing", { prompt: EXAMPLE_PROMPT })}
      >
        Type a text and watch which experts each token uses{layers > 1 && `, in ${layers} layers`}.
      </Door>
      <Door icon="experts" title="Find an expert" to={links.page("search")}>
        Search by word, by passage, by two texts, or by what the model should say.
      </Door>
      <Door icon="probing" title="Is it faithful?" to={compared.page("evaluate")}>
        Loss, labels and probes beside a transcoder of equal size, with intervals. Also where it loses.
      </Door>
      <p className="ink2">
        First time here?{" "}
        <Link className="link" to={useTourUrl()(1)}>
          Take the tour: six steps, two minutes
        </Link>
      </p>
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
      run={run}
      title="changes a text"
      request={{ prompt: EXAMPLE_PROMPT }}
      edits={[newEdit(expert)]}
      texts={[]}
    >
      <Doors run={run} />
    </Hero>
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
  const hasShowcase = showcase !== null && shownRun !== undefined && expert === null;
  if (!hasShowcase && run.indexed_tokens !== null) return <BestExpert run={run} />;
  if (hasShowcase)
    return (
      <Hero
        run={shownRun}
        title={showcase.title}
        request={showcase.session.steering}
        edits={requestEdits(showcase.session.steering.edits ?? [])}
        controls={showcase.controls}
        texts={showcase.texts}
      >
        <Doors run={run} />
      </Hero>
    );
  return (
    <>
      <NotIndexed run={run} />
      <Doors run={run} />
    </>
  );
}

export default function HomePage() {
  return (
    <>
      <title>MxD Explorer</title>
      <PageBar crumbs={[{ label: "Home" }]} />
      <WithRun>{(run) => <Content run={run} />}</WithRun>
    </>
  );
}
