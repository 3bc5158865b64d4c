/** “I want it to say …”: experts that make a text follow the prompt, with prediction, measurement and price. */

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "react-router";

import { findQuery, pricesQuery, routingOptionsQuery } from "@/api/queries";
import type { EditEffect, FindRequest, FindResponse, FoundExpert, RoutedExpertInfo, RunSummary } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks, pickLayerRuns } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { steeredTurns } from "@/components/prompt/turns-param";
import { useTray } from "@/components/tray/tray-context";
import { Button } from "@/components/ui/button";
import { ScrollBox } from "@/components/ui/pane-head";
import { ErrorState, LoadingState } from "@/components/ui/states";
import type { SetParams } from "@/hooks/use-url-state";
import { describeEdit, type Edit } from "@/lib/edits/edits";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";
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
  /** In the field until another text is typed or searched. */
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

export function FindPane({ run, params, setParams, prompt, commit, suggested = "" }: FindPaneProps) {
  const [typed, setTyped] = useState<Partial<Pick<SteeringParams, "wanted" | "unwanted">>>(
    suggested === "" || params.wanted !== "" ? {} : { wanted: suggested },
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
        <Button type="submit" icon="search">
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

function Found({ run, request }: { readonly run: string; readonly request: FindRequest }) {
  const { runs } = useCurrentRun();
  const found = useQuery(findQuery(request));
  const { probability = 0, experts = [] } = found.data?.found ?? {};
  const prices = useQuery(pricesQuery(request, experts));
  if (found.error !== null) return <ErrorState error={found.error} onRetry={() => void found.refetch()} />;
  if (found.data === undefined)
    return <LoadingState label="Searching; the language model is loaded on first use" rows={3} />;
  const what = request.wanted?.length
    ? request.wanted.map((text) => `“${text.trim()}”`).join(" or ")
    : "no unwanted text";
  const best = Math.max(0, ...experts.map((expert) => expert.probability));
  const searched = runs.filter(({ name }) => request.runs.includes(name)).reduce((sum, it) => sum + it.num_experts, 0);
  const costly = prices.data?.filter((effect) => effect.is_costly).length ?? 0;
  return (
    <>
      <p role="status">
        {what} follows with a probability of {percent(probability)} %.{" "}
        {experts.length === 0
          ? "No expert makes it more probable."
          : best < LIKELY && (
              <b>
                None of these experts works: the best one brings it to {percent(best)} %, and below{" "}
                {formatPercent(LIKELY, 0)} % the model hardly ever says it.
              </b>
            )}{" "}
        {costly > 0 && (
          <>
            {costly === experts.length ? "All" : costly} of these {experts.length} are{" "}
            <Term id="edit_price">costly to other text</Term>.
          </>
        )}
      </p>
      {experts.length > 0 && (
        <p className="ink2">
          The best {experts.length} of {formatCount(searched)} experts for this one prompt: some raise it by chance, and
          a label need not be about the text.
          {(request.unwanted ?? []).length > 0 &&
            " Effect: change of log p of the wanted minus that of the unwanted text."}
        </p>
      )}
      {experts.length > 0 && <FoundTable run={run} found={found.data} prices={prices.data} />}
      {prices.error !== null && <ErrorState error={prices.error} />}
    </>
  );
}

const COLUMNS = [
  ["Strength", ""],
  ["Effect", "nats"],
  ["Probability", "%"],
  [
    <Term key="price" id="edit_price">
      Price
    </Term>,
    "nats",
  ],
] as const;

interface FoundTableProps {
  readonly run: string;
  readonly found: FindResponse;
  /** Undefined until they are measured. */
  readonly prices: readonly EditEffect[] | undefined;
}

function FoundTable({ run, found: { found, experts: infos }, prices }: FoundTableProps) {
  return (
    <ScrollBox className="find-table" label="Experts found">
      <table>
        <thead>
          <tr>
            <th scope="col">
              <span className="sr">Add to tray</span>
            </th>
            <th scope="col">Expert</th>
            {COLUMNS.map(([name, unit], i) => (
              <th key={i} scope="col" className="num">
                {name} <span className="unit">{unit}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {found.experts.map((expert, index) => (
            <FoundRow
              key={`${expert.edit.run}/${expert.edit.expert}`}
              run={run}
              expert={expert}
              info={infos[expert.edit.run ?? run]?.[expert.edit.expert]}
              price={prices?.[index]}
            />
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}

interface FoundRowProps {
  readonly run: string;
  readonly expert: FoundExpert;
  readonly info: RoutedExpertInfo | undefined;
  readonly price: EditEffect | undefined;
}

function FoundRow({ run, expert: { edit, ...effect }, info, price }: FoundRowProps) {
  const tray = useTray();
  const own = edit.run ?? run;
  const isInTray = tray.has(edit.expert, own);
  const figures = {
    strength: [describeEdit({ mode: edit.mode, strength: edit.strength ?? 1 })],
    "effect, nats": [formatSigned(effect.change), `predicted ${formatSigned(effect.predicted)}`],
    "probability, %": [percent(effect.probability)],
    "price, nats":
      price === undefined
        ? ["…"]
        : [formatFixed(price.price, 3), `${formatFixed(price.price / price.random_price, 1)} × random`],
  };
  return (
    <tr data-costly={price?.is_costly === true || undefined}>
      <td>
        <Button
          size="small"
          icon={isInTray ? "check" : "plus"}
          aria-label={`Expert ${edit.expert} in the tray`}
          aria-pressed={isInTray}
          onClick={() => (isInTray ? tray.remove(edit.expert, own) : tray.put(trayEdit(edit, run)))}
        />
      </td>
      <th scope="row">
        <Link className="mono" to={pageLinks(own).expert(edit.expert)}>
          {own === run ? edit.expert : `${own}/${edit.expert}`}
        </Link>{" "}
        <ExpertLabel label={info?.label ?? null} automatic={info?.automatic} topTokens={info?.top_tokens ?? []} />
      </th>
      {Object.entries(figures).map(([name, [text, note]]) => (
        <td key={name} className="num" data-name={name}>
          <span>
            {text} {note !== undefined && <small>{note}</small>}
          </span>
        </td>
      ))}
    </tr>
  );
}
