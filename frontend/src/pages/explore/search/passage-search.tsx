/** Runs a passage through the language model and ranks the experts that fire on it or on one of its tokens. */

import { useQuery } from "@tanstack/react-query";

import { passageQuery } from "@/api/queries";
import type { PassageHit, PassageResult, PassageToken, RunSummary } from "@/api/types";
import { ActivationCell, isWeak, WeakLast } from "@/components/experts/expert-link";
import { AddToList } from "@/components/lists/add-to-list";
import { recordsCsv } from "@/components/plots/figure";
import { ExamplePrompts } from "@/components/prompt/example-prompts";
import { PromptBox, SUBMIT_KEY, usePromptDraft } from "@/components/prompt/prompt-box";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { displayText } from "@/components/tokens/token-text";
import { ExportMenu } from "@/components/ui/action-menu";
import { Button } from "@/components/ui/button";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { choiceParam, flagParam, numberParam, textParam, type UrlState } from "@/hooks/use-url-state";
import { formatCount, formatFixed, formatShare } from "@/lib/text/format";
import { sentencePrompt } from "@/lib/text/kwic";
import { visibleText, whitespaceName } from "@/lib/text/token-text";
import { FoundExpert } from "@/pages/prompt/expert-name";

import { densityColumn, type FoundColumn, FoundTable, useParts } from "./found-table";

/** Words are looked up in labels, tokens and examples; a passage or two texts are run through the language model, and the
 *  last is what it should say. */
export const SEARCH_KINDS = {
  words: "Words",
  passage: "A passage",
  texts: "Two texts",
  effect: "I want it to say …",
} as const;

export const SEARCH_PARAMS = {
  kind: choiceParam(Object.keys(SEARCH_KINDS) as (keyof typeof SEARCH_KINDS)[], "words"),
  text: textParam(""),
  position: numberParam(null, { min: 0 }),
  by: choiceParam(["lift", "mass"], "lift"),
  max_density: numberParam(null, { min: 0, max: 1 }),
  /** Whether weak labels are not ordered after the others. */
  mixed: flagParam,
  /** Of words: the only layer to show. */
  layer: numberParam(null, { min: 0 }),
};

/** What the parts of the page share. */
export interface SearchProps extends UrlState<typeof SEARCH_PARAMS> {
  readonly run: RunSummary;
}

export function passageCsv({ hits, tokens }: Pick<PassageResult, "hits" | "tokens">): string {
  return recordsCsv(
    hits.map(({ expert, label, automatic, mass, share, lift, lift_low, lift_high, density, peak, top_tokens }) => ({
      ...{ expert, label, automatic_label: automatic?.label, mass, share, lift, lift_low, lift_high, density },
      strongest_on: tokens[peak]?.text,
      top_tokens: top_tokens.map((token) => token.text).join(" "),
    })),
  );
}

interface PassageTokensProps {
  readonly tokens: readonly PassageToken[];
  readonly position: number | null;
  readonly onChoose: (position: number | null) => void;
}

/** Tokens of the passage as toggle buttons; pressing one restricts the search to it. */
function PassageTokens({ tokens, position, onChoose }: PassageTokensProps) {
  return (
    <p className="passage-tokens mono" role="group" aria-label="Tokens of the passage">
      <span className="hint">Rank by</span>
      <button type="button" aria-pressed={position === null} onClick={() => onChoose(null)}>
        all tokens
      </button>
      <span className="hint">or one:</span>
      {tokens.map((token, i) =>
        token.start || token.text === "" ? null : (
          <button
            key={i}
            type="button"
            aria-pressed={i === position}
            aria-label={whitespaceName(token.text) ?? undefined}
            onClick={() => onChoose(i === position ? null : i)}
          >
            {displayText(token.text, "line", true).trimStart() || visibleText(token.text)}
          </button>
        ),
      )}
    </p>
  );
}

/** Number of tokens on which the ranking looks. */
const consideredTokens = ({ active, share }: Pick<PassageHit, "active" | "share">) => Math.round(active.length / share);

const liftText = (lift: number) => (lift >= 100 ? formatCount(lift) : formatFixed(lift, 1));

/** The lift, with its interval if there are several tokens. */
function Lift({ hit: { lift, lift_low: low, lift_high: high, ...hit } }: { readonly hit: PassageHit }) {
  if (lift === null) return "–";
  return (
    <>
      × {liftText(lift)}{" "}
      {low !== null && high !== null && consideredTokens(hit) > 1 && (
        <span className="unit">
          ({liftText(low)} to {liftText(high)})
        </span>
      )}
    </>
  );
}

interface FindingProps {
  readonly hit: PassageHit;
  readonly tokens: PassageResult["tokens"];
  readonly params: SearchProps["params"];
}

/** The first expert of the order. */
function Finding({ hit, tokens, params: { by, mixed } }: FindingProps) {
  const considered = consideredTokens(hit);
  const superlative = by === "mass" ? "Strongest" : considered === 1 ? "Rarest" : "Most specific";
  return (
    <p className="finding">
      {superlative}
      {!mixed && !isWeak(hit.label, hit.automatic) && " with a label that is not weak"}:{" "}
      <FoundExpert info={{ ...hit, top_tokens: hit.top_tokens.map(({ text }) => text) }} expert={hit.expert} />
      {considered === 1 ? (
        <>
          , activation {formatFixed(hit.mass)} on <TokenChip text={tokens[hit.peak]?.text ?? ""} />
          {hit.density !== null && `, active on ${formatShare(hit.density)} % of the indexed tokens`}.
        </>
      ) : (
        <>
          , active on {hit.active.length} of {formatCount(considered)} tokens
          {hit.lift !== null && (
            <>
              , <Lift hit={hit} /> its usual rate
            </>
          )}
          .
        </>
      )}
    </p>
  );
}

/** How the experts are ordered, and what the order does not show. */
const CAVEATS = {
  lift: "Order: lower end of the lift’s interval; experts that are active on one token come later, those whose interval includes 1 last. It counts tokens as independent, but those of one passage depend on each other, so it is too narrow. It is not corrected for many experts: the order is a shortlist, not a test.",
  one: "Order: rarest first. On one token, the lift is 1 / density. The order is a shortlist, not a test.",
  mass: "Order: sum of the activations on the passage. Experts that are active on most tokens of any text come first. Limit the density to leave them out.",
} as const;

interface PassageHitsProps {
  readonly result: PassageResult;
  readonly by: SearchProps["params"]["by"];
}

/** Table of the experts that fire on a passage. */
function PassageHits({ result, by }: PassageHitsProps) {
  const [rows, more] = useParts(result.hits);
  const [considered = 0] = result.hits.map(consideredTokens);
  const isOne = considered === 1;
  const largest = Math.max(...result.hits.map((hit) => hit.mass), 0);
  const columns: readonly FoundColumn<PassageHit>[] = [
    {
      key: "lift",
      name: (
        <>
          <Term id="lift">Lift</Term>{" "}
          <span className="unit">
            {isOne ? "1 / density" : by === "lift" ? "by the interval’s lower end" : "95 % interval"}
          </span>
        </>
      ),
      isNumber: true,
      isSorted: by === "lift",
      cell: (hit) => <Lift hit={hit} />,
    },
    {
      key: "peak",
      name: "Peak token",
      from: "tablet",
      cell: (hit) => <TokenChip text={result.tokens[hit.peak]?.text ?? ""} />,
    },
    {
      key: "mass",
      name: isOne ? "Activation" : <Term id="summed_activation">Summed act.</Term>,
      isNumber: true,
      isSorted: by === "mass",
      from: "tablet",
      cell: (hit) => <ActivationCell value={hit.mass} largest={largest} />,
    },
    {
      key: "active",
      name: "Active on",
      isNumber: true,
      from: "laptop",
      cell: (hit) => (
        <>
          {hit.active.length} <span className="unit">of {formatCount(considered)}</span>
        </>
      ),
    },
    densityColumn(({ density }) => density),
  ];
  return (
    <>
      <FoundTable
        label="Matching experts"
        rows={rows}
        found={(hit) => ({ ...hit, topTokens: hit.top_tokens })}
        columns={columns.filter(({ key }) => !isOne || (key !== "peak" && key !== "active"))}
      />
      {more}
      <p className="ink2">{isOne && by === "lift" ? CAVEATS.one : CAVEATS[by]}</p>
    </>
  );
}

const DEBOUNCE_MS = 600;
/** Experts above this density are not specific to the passage. */
const COMMON_DENSITY = 0.01;

/** `152 experts fire on the passage, 120 of them with density ≤ 1 %; the first 100 are listed`. */
function countText(
  { hits, matching, firing }: PassageResult,
  { position, max_density }: SearchProps["params"],
): string {
  const place = position === null ? "passage" : "token";
  const fires = firing === 1 ? `expert fires on the ${place}` : `experts fire on the ${place}`;
  const rare = max_density === null ? "" : `, ${formatCount(matching)} of them with density ≤ ${100 * max_density} %`;
  const listed = hits.length < matching ? `; the first ${formatCount(hits.length)} are listed` : "";
  return `${formatCount(firing)} ${fires}${rare}${listed}`;
}

interface ResultBarProps extends SearchProps {
  /** undefined while the result still belongs to the previous query. */
  readonly result: PassageResult | undefined;
}

/** The ranking, the number of matching experts, and actions on them. */
function ResultBar({ run, result, params, setParams }: ResultBarProps) {
  const onlyRare = params.max_density !== null;
  return (
    <div className="row wrap search-bar">
      <SegmentedControl
        label="Rank by"
        value={params.by}
        onChange={(by) => setParams({ by }, "push")}
        segments={segmentsOf({ lift: "Lift over density", mass: "Summed activation" })}
      />
      <Button
        variant={onlyRare ? "chosen" : "plain"}
        aria-pressed={onlyRare}
        onClick={() => setParams({ max_density: onlyRare ? null : COMMON_DENSITY }, "push")}
      >
        Density ≤ 1 % only
      </Button>
      <WeakLast params={params} setParams={setParams} />
      <span className={result === undefined ? "count dim" : "count"} role="status">
        {result === undefined ? "Searching…" : countText(result, params)}
      </span>
      {result !== undefined && (
        <>
          <span className="grow" />
          <AddToList
            run={run.name}
            experts={result.hits.map((hit) => hit.expert)}
            label={`Add ${formatCount(result.hits.length)} to list`}
          />
          <ExportMenu
            name={`${run.name}-fires-on`}
            csv={() => passageCsv(result)}
            json={() => ({ asked: params, ...result })}
          />
        </>
      )}
    </div>
  );
}

export function PassageSearch({ run, params, setParams }: SearchProps) {
  const search = (text: string) => setParams({ text, position: null });
  const draft = usePromptDraft(params.text, search, DEBOUNCE_MS);
  const { text, position, by, max_density, mixed } = params;
  const { data, error, isFetching, isPlaceholderData, refetch } = useQuery(
    passageQuery(run.name, { text, position, by, max_density, weak_last: !mixed }),
  );
  return (
    <div className="stack search-page" aria-busy={isFetching}>
      <section className="prompt-row">
        <PromptBox label="Passage" placeholder="Paste a passage to find the experts that fire on it" draft={draft} />
        <div className="row prompt-actions">
          <Button variant="primary" disabled={draft.text === ""} onClick={draft.commit}>
            Run through the model<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        </div>
      </section>
      {text === "" && (
        <div className="search-empty">
          <EmptyState title="Find the experts that fire on a passage">
            Paste a passage above. <Term id="lift">Lift</Term> ranks experts by how much more often they fire on it than
            elsewhere, <Term id="summed_activation">summed activation</Term> by how strongly. Click a token to restrict
            the ranking to it. Longer passages give narrower intervals.
          </EmptyState>
          {run.indexed_tokens !== null && <ExamplePrompts run={run.name} toPrompt={sentencePrompt} onChoose={search} />}
        </div>
      )}
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {text !== "" && data === undefined && error === null && (
        <LoadingState label="Routing; the language model is loaded on first use" rows={10} />
      )}
      {text !== "" && data !== undefined && (
        <>
          <PassageTokens
            tokens={data.tokens}
            position={position}
            onChoose={(chosen) => setParams({ position: chosen }, "push")}
          />
          <ResultBar run={run} result={isPlaceholderData ? undefined : data} params={params} setParams={setParams} />
          {data.hits[0] === undefined ? (
            <EmptyState title="No matching experts" />
          ) : (
            <>
              <Finding hit={data.hits[0]} tokens={data.tokens} params={params} />
              <PassageHits result={data} by={by} />
            </>
          )}
        </>
      )}
    </div>
  );
}
