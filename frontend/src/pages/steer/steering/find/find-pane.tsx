/** “I want it to say …”: experts that make a text follow the prompt, with prediction, measurement and price. */

import { useQuery } from "@tanstack/react-query";
import { Fragment, type ReactNode, useMemo, useState } from "react";

import { effectsQuery, findQuery, routingOptionsQuery } from "@/api/queries";
import type {
  EditEffect,
  FindRequest,
  FoundExpert,
  RoutedExpertInfo,
  RunSummary,
  SearchColumn,
  TermId,
} from "@/api/types";
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
              className="field grow"
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
  /** Undefined until it is measured. */
  readonly measured: EditEffect | undefined;
  /** Place in the server's order. */
  readonly rank: number;
  /** Number of other texts. */
  readonly texts: number;
  readonly info: RoutedExpertInfo | undefined;
  readonly isNaming: boolean;
}

interface Cell {
  /** Of what the reader can sort by; from large to small at first. */
  readonly value?: (row: Row) => number;
  /** Of what is known before the measurement on other texts. */
  readonly found?: (row: Row) => ReactNode;
  readonly measured?: (effect: EditEffect, row: Row) => ReactNode;
  readonly from?: FoundColumn<Row>["from"];
  readonly term?: TermId;
}

const signed = (nats: number) => <span className={nats <= -0.005 ? "bad" : undefined}>{formatSigned(nats)}</span>;
const strength = ({ edit }: Row) => describeEdit({ mode: edit.mode, strength: edit.strength ?? 1 });
/** The price in prices of random experts. */
const timesRandom = ({ price, random_price: random }: EditEffect) => price / random;

const CELLS: Readonly<Record<SearchColumn["key"], Cell>> = {
  strength: { from: "laptop", found: strength },
  held_out: {
    ...{ term: "search_effect", value: ({ rank }) => -rank },
    measured: ({ held_out_change: change }) => (change === null ? "–" : signed(change)),
  },
  rises: {
    from: "tablet",
    measured: ({ held_out_rises: rises }, { texts }) => (texts === 0 ? "–" : `${rises} of ${texts}`),
  },
  change: {
    ...{ term: "search_effect", value: ({ change }) => change },
    found: ({ change, predicted }) => (
      <span title={`predicted ${formatSigned(predicted)}`}>{formatSigned(change)}</span>
    ),
  },
  alone: {
    ...{ term: "search_effect", value: ({ measured }) => measured?.alone ?? 0, from: "tablet" },
    measured: ({ alone }) => signed(alone),
  },
  probability: { from: "laptop", found: ({ probability }) => percent(probability) },
  price: {
    ...{ term: "edit_price", value: ({ measured }) => (measured === undefined ? 0 : timesRandom(measured)) },
    ...{ from: "tablet" },
    measured: (effect) => (
      <span className={effect.is_costly ? "bad" : undefined} title={`${formatFixed(effect.price, 3)} nats`}>
        {formatFixed(timesRandom(effect), 1)}
      </span>
    ),
  },
};

const cellOf = (key: SearchColumn["key"], row: Row): ReactNode => {
  const { found, measured } = CELLS[key];
  return found?.(row) ?? (row.measured === undefined ? "…" : measured?.(row.measured, row));
};

/** What narrow windows have no columns for. */
const Below = ({ row, columns }: { readonly row: Row; readonly columns: readonly SearchColumn[] }) => (
  <p className="dim">
    Layer {row.layer}
    {columns
      .filter(({ key }) => CELLS[key].from !== undefined)
      .map(({ key, title, unit }) => (
        <Fragment key={key}>
          {" "}
          · {title} {cellOf(key, row)} {unit}
        </Fragment>
      ))}
  </p>
);

function Found({ run, request }: { readonly run: string; readonly request: FindRequest }) {
  const { runs } = useCurrentRun();
  const found = useQuery(findQuery(request));
  const { probability: before = 0, wish = 0, experts = [] } = found.data?.found ?? {};
  const effects = useQuery(effectsQuery(request, experts));
  if (found.error !== null) return <ErrorState error={found.error} onRetry={() => void found.refetch()} />;
  if (found.data === undefined)
    return <LoadingState label="Searching; the language model is loaded on first use" rows={3} />;
  const texts = { wanted: quoted(request.wanted), unwanted: quoted(request.unwanted) };
  const rows = experts.map((expert, i): Row => {
    const { edit } = expert;
    const own = edit.run ?? run;
    return {
      ...{ ...expert, run: own, measured: effects.data?.effects[i] },
      ...{ rank: effects.data?.best_first.indexOf(i) ?? i, texts: effects.data?.held_out.length ?? 0 },
      layer: runs.find(({ name }) => name === own)?.layer,
      info: found.data.experts[own]?.[edit.expert],
      isNaming: found.data.naming[own]?.includes(edit.expert) === true,
    };
  });
  const searched = runs.filter(({ name }) => request.runs.includes(name)).reduce((sum, it) => sum + it.num_experts, 0);
  const measuring = effects.isPending ? "Measuring them, and random experts, on other texts …" : "";
  const answer = rows.length === 0 ? "No expert makes it more probable." : (effects.data?.answer ?? measuring);
  return (
    <>
      <p role="status" aria-busy={rows.length > 0 && effects.isPending}>
        <b>{answer}</b> {texts.wanted || "no unwanted text"} follows with a probability of {percent(before)} %
        {texts.wanted !== "" &&
          texts.unwanted !== "" &&
          `, ${texts.unwanted} with ${percent(before / Math.exp(wish))} %`}
        . <Verdict rows={rows} {...texts} />
      </p>
      {rows.length > 0 && (
        <>
          <p className="ink2">
            The best {rows.length} of {formatCount(searched)} experts after this prompt. {effects.data?.comparison}
          </p>
          <Experts run={run} rows={rows} columns={found.data.columns} {...texts} />
          {effects.data !== undefined && effects.data.held_out.length > 0 && (
            <details className="ink2">
              <summary>The other texts</summary>
              <ul>
                {effects.data.held_out.map((text) => (
                  <li key={text} className="mono">
                    {text} <b>{texts.wanted || texts.unwanted}</b>
                  </li>
                ))}
              </ul>
            </details>
          )}
        </>
      )}
      {effects.error !== null && <ErrorState error={effects.error} />}
    </>
  );
}

interface TableProps {
  readonly run: string;
  readonly rows: readonly Row[];
  readonly columns: readonly SearchColumn[];
  /** In quotation marks; empty for none. */
  readonly wanted: string;
  readonly unwanted: string;
}

/** What restricts the answer, and what the experts cost. */
function Verdict({ rows, wanted, unwanted }: Omit<TableProps, "run" | "columns">) {
  const ordered = rows.toSorted((a, b) => a.rank - b.rank);
  const best = ordered.find(({ measured }) => measured?.is_costly !== true) ?? ordered[0];
  if (best === undefined) return null;
  const count = (isSo: (effect: EditEffect) => boolean) =>
    rows.filter(({ measured }) => measured !== undefined && isSo(measured)).length;
  const costly = count(({ is_costly: isCostly }) => isCostly);
  const lower = wanted !== "" && unwanted !== "" ? count(({ alone }) => alone < 0) : 0;
  const ofThese = (number: number, one: string, many: string) =>
    `${number === rows.length ? "All" : number} of these ${rows.length} ${number === 1 ? one : many}`;
  return (
    <>
      Expert {best.edit.expert} brings it to {percent(best.probability)} %
      {best.probability < LIKELY && `, and below ${formatPercent(LIKELY, 0)} % the model hardly ever says it`}.{" "}
      {lower > 0 && `${ofThese(lower, "makes", "make")} ${wanted} less probable, and ${unwanted} even less. `}
      {costly > 0 && (
        <>
          {ofThese(costly, "is", "are")} <Term id="edit_price">costly to other text</Term>, in grey.
        </>
      )}
    </>
  );
}

function Experts({ run, rows, wanted, unwanted, columns: all }: TableProps) {
  const isNarrow = useIsNarrow();
  const [{ sort, order }, setSorting] = useState<Sorting<SearchColumn["key"]>>({ sort: "held_out", order: "desc" });
  const sorted = rows.toSorted((a, b) => {
    const value = CELLS[sort].value ?? (() => 0);
    return (value(b) - value(a)) * (order === "desc" ? 1 : -1);
  });
  const columns = all.filter(({ key }) => key !== "alone" || (wanted !== "" && unwanted !== ""));
  const shown = columns.map(({ key, title, unit }): FoundColumn<Row> => {
    const { value, from = "phone", term } = CELLS[key];
    const name = (
      <>
        {title} <span className="unit">{unit}</span>
      </>
    );
    const sorted = { sorting: { sort, order }, onSort: setSorting, column: key, term };
    return {
      ...{ key, name, isNumber: true, from, cell: (row) => cellOf(key, row) },
      head: value && (
        <SortHeader className={`num c-${key}`} {...sorted}>
          {name}
        </SortHeader>
      ),
    };
  });
  return (
    <FoundTable
      label="Experts found"
      rows={sorted}
      found={({ edit, info, run: own, isNaming, measured }) => ({
        ...{ expert: edit.expert, run: own, label: info?.label ?? null, automatic: info?.automatic ?? null },
        topTokens: info?.top_tokens.map((text) => ({ text })),
        edit: trayEdit(edit, run),
        isDim: measured?.is_costly === true,
        note: isNaming && <span className="tag">names it</span>,
      })}
      lead={{ ...LAYER, from: "tablet", cell: ({ layer }) => layer }}
      withTokens={false}
      columns={shown}
      below={(row) => (isNarrow ? <Below row={row} columns={columns} /> : null)}
    />
  );
}
