/** “I want it to say …”: experts that make a text follow the prompt, with prediction, measurement and price. */

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";

import { findQuery, pricesQuery, routingOptionsQuery } from "@/api/queries";
import type { EditEffect, FindRequest, FoundExpert, RoutedExpertInfo, RunSummary, TermId } from "@/api/types";
import { steeredTurns } from "@/components/prompt/turns-param";
import { useCurrentRun } from "@/components/runs/current-run";
import { pickLayerRuns } from "@/components/runs/page-links";
import { SortHeader, type Sorting } from "@/components/table/sort-header";
import { Term } from "@/components/terms/term";
import { Button } from "@/components/ui/button";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useIsNarrow } from "@/hooks/use-size";
import type { SetParams } from "@/hooks/use-url-state";
import { describeEdit, type Edit } from "@/lib/edits/edits";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";
import { type FoundColumn, FoundTable, LAYER } from "@/pages/explore/search/found-table";
import { type STEERING_PARAMS, type SteeringParams, wantedTexts } from "@/pages/steer/steering/steering-params";

/** An edit of the tray names its expert's run only if that is another one. */
const trayEdit = ({ expert, mode, strength = 1, run }: FoundExpert["edit"], current: string): Edit => ({
  ...{ expert, mode, strength },
  ...(run != null && run !== current && { run }),
});

interface FindPaneProps {
  readonly run: RunSummary;
  readonly params: SteeringParams;
  readonly setParams: SetParams<typeof STEERING_PARAMS>;
  /** The prompt as typed; `commit` writes it to the URL. */
  readonly prompt: string;
  readonly commit: () => void;
  /** In the field of Search until another text is typed or searched. Steer has none. */
  readonly suggested?: string;
}

/** The search of the URL's texts, over one run per layer; null without wanted texts or while the runs are loading. */
function useRequest(run: RunSummary, params: SteeringParams): FindRequest | null {
  const { data, error } = useQuery(routingOptionsQuery(run.name));
  return useMemo(() => {
    const before = params.turns.length > 0 ? "" : params.prompt;
    const wanted = wantedTexts(params.wanted, before);
    const unwanted = wantedTexts(params.unwanted, before);
    const isEmpty = params.prompt === "" && params.turns.length === 0;
    if (isEmpty || wanted.length + unwanted.length === 0 || (data === undefined && error === null)) return null;
    const others = data?.layers.filter(({ method }) => method !== "autoencoder") ?? [];
    return {
      runs: [run.name, ...pickLayerRuns(run, others)],
      prompts: params.turns.length > 0 ? [] : [params.prompt],
      turns: steeredTurns(params.turns),
      wanted,
      unwanted,
    };
  }, [run, params.prompt, params.turns, params.wanted, params.unwanted, data, error]);
}

const FIELDS = [
  { name: "wanted", label: "I want it to say", placeholder: "medicine" },
  { name: "unwanted", label: "and not", placeholder: "optional" },
] as const;

export function FindPane({ run, params, setParams, prompt, commit, suggested }: FindPaneProps) {
  const [typed, setTyped] = useState<Partial<Pick<SteeringParams, "wanted" | "unwanted">>>(
    !suggested || params.wanted !== "" ? {} : { wanted: suggested },
  );
  const [isAsked, setAsked] = useState(false);
  const { wanted, unwanted } = { ...params, ...typed };
  const request = useRequest(run, params);
  const missing = [
    ...(prompt.trim() === "" && params.turns.length === 0 ? ["the beginning of a text in the prompt above"] : []),
    ...(wanted.trim() + unwanted.trim() === "" ? ["what should follow it"] : []),
  ];
  const set = (texts: typeof typed) => {
    setTyped({});
    setParams(texts);
  };
  return (
    <section className="find" aria-label="Search by effect">
      <form
        className="row wrap find-form"
        onSubmit={(event) => {
          event.preventDefault();
          setAsked(true);
          if (missing.length > 0) return;
          commit();
          set({ wanted, unwanted });
        }}
      >
        {FIELDS.map(({ name, label, placeholder }) => (
          <label key={name} className="row" title="What should follow the prompt. Separate alternatives by |.">
            {label}
            <input
              className="field"
              value={{ wanted, unwanted }[name]}
              placeholder={placeholder}
              onChange={(event) => setTyped({ ...typed, [name]: event.target.value })}
            />
          </label>
        ))}
        <Button type="submit" icon="search" variant={suggested === undefined ? "plain" : "primary"}>
          Find experts
        </Button>
        {request !== null && (
          <Button
            variant="ghost"
            icon="close"
            aria-label="Close the search"
            onClick={() => set({ wanted: "", unwanted: "" })}
          />
        )}
      </form>
      {isAsked && missing.length > 0 && <p role="status">Type {missing.join(", and ")}.</p>}
      {request !== null && <Found run={run.name} request={request} />}
    </section>
  );
}

/** A probability from which an expert is worth trying. */
const LIKELY = 0.01;

/** A probability in percent with two significant digits, such as `0.0031`. */
const percent = (probability: number) =>
  probability >= 0.0995 ? formatPercent(probability, 0) : (100 * probability).toPrecision(2);

const quoted = (texts: readonly string[] = []) => texts.map((text) => `“${text.trim()}”`).join(" or ");

interface Row extends FoundExpert {
  readonly run: string;
  readonly layer: number | undefined;
  /** Change of log p of the wanted text alone. */
  readonly alone: number;
  /** Undefined until it is measured. */
  readonly price: EditEffect | undefined;
  readonly info: RoutedExpertInfo | undefined;
}

const strength = ({ edit }: Row) => describeEdit({ mode: edit.mode, strength: edit.strength ?? 1 });

/** The price in prices of random experts. */
const timesRandom = ({ price, random_price: random }: EditEffect) => price / random;

const SORTS = {
  // Those that lower the wanted text, and the unwanted one even more, are last.
  effect: ({ change, alone }: Row) => (alone < 0 ? change - 1e3 : change),
  alone: ({ alone }: Row) => alone,
  price: ({ price }: Row) => (price === undefined ? 0 : timesRandom(price)),
};
type Sort = keyof typeof SORTS;

function Price({ price }: Pick<Row, "price">) {
  if (price === undefined) return "…";
  return (
    <span className={price.is_costly ? "bad" : undefined} title={`${formatFixed(price.price, 3)} nats`}>
      {formatFixed(timesRandom(price), 1)} ×
    </span>
  );
}

function Found({ run, request }: { readonly run: string; readonly request: FindRequest }) {
  const { runs } = useCurrentRun();
  const found = useQuery(findQuery(request));
  const { probability: before = 0, wish = 0, experts = [] } = found.data?.found ?? {};
  const prices = useQuery(pricesQuery(request, experts));
  if (found.error !== null) return <ErrorState error={found.error} onRetry={() => void found.refetch()} />;
  if (found.data === undefined)
    return <LoadingState label="Searching; the language model is loaded on first use" rows={3} />;
  const texts = { wanted: quoted(request.wanted), unwanted: quoted(request.unwanted) };
  const rows = experts.map(({ edit, ...effects }, i): Row => ({
    ...{ ...effects, edit, run: edit.run ?? run, price: prices.data?.[i] },
    layer: runs.find(({ name }) => name === (edit.run ?? run))?.layer,
    alone: Math.log(effects.probability / before),
    info: found.data.experts[edit.run ?? run]?.[edit.expert],
  }));
  const searched = runs.filter(({ name }) => request.runs.includes(name)).reduce((sum, it) => sum + it.num_experts, 0);
  return (
    <>
      <p role="status">
        {texts.wanted || "no unwanted text"} follows with a probability of {percent(before)} %
        {texts.wanted !== "" &&
          texts.unwanted !== "" &&
          `, ${texts.unwanted} with ${percent(before / Math.exp(wish))} %`}
        . <Verdict rows={rows} {...texts} />
      </p>
      {rows.length > 0 && (
        <>
          <p className="ink2">
            The best {rows.length} of {formatCount(searched)} experts for this one prompt.{" "}
            {prices.data !== undefined && describeRandom(prices.data)} Their labels may have nothing to do with the
            text: check with another prompt.
          </p>
          <Experts run={run} rows={rows} {...texts} />
        </>
      )}
      {prices.error !== null && <ErrorState error={prices.error} />}
    </>
  );
}

interface ExpertsProps {
  readonly rows: readonly Row[];
  /** In quotation marks; empty for none. */
  readonly wanted: string;
  readonly unwanted: string;
}

/** What the same search is worth with random experts in place of its own. */
const describeRandom = (prices: readonly EditEffect[]) =>
  `The largest effect of ${prices.reduce((sum, each) => sum + each.random_experts, 0)} random experts at these strengths: ${formatSigned(Math.max(...prices.map((each) => each.random_change)))} nats.`;

/** Whether the experts work, at the cost of what. */
function Verdict({ rows, wanted, unwanted }: ExpertsProps) {
  if (rows.length === 0) return "No expert makes it more probable.";
  const best = Math.max(...rows.map((row) => row.probability));
  const costly = rows.filter(({ price }) => price?.is_costly === true).length;
  const lower = wanted !== "" && unwanted !== "" ? rows.filter(({ alone }) => alone < 0).length : 0;
  const ofThese = (count: number, one: string, many: string) =>
    `${count === rows.length ? "All" : count} of these ${rows.length} ${count === 1 ? one : many}`;
  return (
    <>
      <b>
        {best < LIKELY &&
          `None of these experts works: the best one brings it to ${percent(best)} %, and below ${formatPercent(LIKELY, 0)} % the model hardly ever says it. `}
        {lower > 0 && `${ofThese(lower, "makes", "make")} ${wanted} less probable, and ${unwanted} even less. `}
      </b>
      {costly > 0 && (
        <>
          {ofThese(costly, "is", "are")} <Term id="edit_price">costly to other text</Term>.
        </>
      )}
    </>
  );
}

function Experts({ run, rows, wanted, unwanted }: ExpertsProps & { readonly run: string }) {
  const isNarrow = useIsNarrow();
  const [{ sort, order }, setSorting] = useState<Sorting<Sort>>({ sort: "effect", order: "desc" });
  const sorted = rows.toSorted((a, b) => (SORTS[sort](b) - SORTS[sort](a)) * (order === "desc" ? 1 : -1));
  const isContrast = wanted !== "" && unwanted !== "";
  const number = (column: Sort, name: string, unit: string, term: TermId = "search_effect") => ({
    ...{ key: column, name, isNumber: true },
    head: (
      <SortHeader className={`num c-${column}`} sorting={{ sort, order }} onSort={setSorting} {...{ column, term }}>
        {name} <span className="unit">{unit}</span>
      </SortHeader>
    ),
  });
  const columns: readonly (false | FoundColumn<Row>)[] = [
    { key: "strength", name: "Strength", isNumber: true, from: "laptop", cell: strength },
    {
      ...number("effect", isNarrow ? "Effect" : "Effect, nats", isContrast ? `over ${unwanted}` : ""),
      cell: ({ change, predicted }) => (
        <span title={`predicted ${formatSigned(predicted)}`}>{formatSigned(change)}</span>
      ),
    },
    isContrast && {
      ...number("alone", isNarrow ? "Alone" : "Alone, nats", wanted),
      cell: ({ alone }) => <span className={alone < 0 ? "bad" : undefined}>{formatSigned(alone)}</span>,
    },
    {
      ...{ key: "probability", name: "Probability, %", isNumber: true, from: "tablet" },
      cell: ({ probability }) => percent(probability),
    },
    { ...number("price", "Price", "× random", "edit_price"), from: "tablet", cell: Price },
  ];
  return (
    <FoundTable
      label="Experts found"
      rows={sorted}
      found={({ edit, info, run: own }) => ({
        ...{ expert: edit.expert, run: own, label: info?.label ?? null, automatic: info?.automatic ?? null },
        topTokens: info?.top_tokens.map((text) => ({ text })),
        edit: trayEdit(edit, run),
      })}
      lead={{ ...LAYER, from: "tablet", cell: ({ layer }) => layer }}
      withTokens={false}
      columns={columns.filter((column) => column !== false)}
      below={(row) =>
        isNarrow ? (
          <p className="dim">
            Layer {row.layer}, strength {strength(row)}, predicted {formatSigned(row.predicted)} nats, probability{" "}
            {percent(row.probability)} %
            {row.price !== undefined && (
              <>
                , price <Price {...row} /> random
              </>
            )}
          </p>
        ) : null
      }
    />
  );
}
