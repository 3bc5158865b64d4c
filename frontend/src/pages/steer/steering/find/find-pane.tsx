/** “I want it to say …”: experts that make a text follow the prompt, with prediction, measurement and price. */

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "react-router";

import { findQuery, pricesQuery } from "@/api/find";
import { routingOptionsQuery } from "@/api/queries";
import type { FindRequest, FindResponse, FoundExpert, RoutedExpertInfo, RunSummary } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { pageLinks } from "@/components/runs/page-links";
import { pickLayerRuns } from "@/components/runs/pick-layer-runs";
import { Term } from "@/components/terms/term";
import { steeredTurns } from "@/components/prompt/turns-param";
import { useTray } from "@/components/tray/tray-context";
import { Button } from "@/components/ui/button";
import { ScrollBox } from "@/components/ui/scroll-box";
import { ErrorState, LoadingState } from "@/components/ui/states";
import type { SetParams } from "@/hooks/use-url-state";
import { describeEdit, type Edit } from "@/lib/edits/edits";
import { formatFixed, formatPercent, formatProbability, formatSigned } from "@/lib/text/format";
import type { STEERING_PARAMS, SteeringParams } from "@/pages/steer/steering/steering-params";

import { wantedTexts } from "./wanted";

type HttpEdit = FoundExpert["edit"];

/** An edit of the tray names its expert's run only if that is another one. */
const trayEdit = ({ expert, mode, strength = 1, run }: HttpEdit, current: string): Edit => ({
  expert,
  mode,
  strength,
  ...(run != null && run !== current && { run }),
});

interface FindPaneProps {
  readonly run: RunSummary;
  readonly params: SteeringParams;
  readonly setParams: SetParams<typeof STEERING_PARAMS>;
  /** The prompt as typed; `commit` writes it to the URL. */
  readonly prompt: string;
  readonly commit: () => void;
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

export function FindPane({ run, params, setParams, prompt, commit }: FindPaneProps) {
  const [typed, setTyped] = useState<Partial<Pick<SteeringParams, "wanted" | "unwanted">>>({});
  const { wanted, unwanted } = { ...params, ...typed };
  const request = useRequest(run, params);
  const isEmpty = (prompt.trim() === "" && params.turns.length === 0) || wanted.trim() + unwanted.trim() === "";
  const search = () => {
    commit();
    setParams({ wanted, unwanted });
    setTyped({});
  };
  return (
    <section className="find" aria-label="Search by effect">
      <form
        className="find-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!isEmpty) search();
        }}
      >
        <label>
          I want it to say
          <input
            className="field"
            value={wanted}
            placeholder="medicine"
            title="What should follow the prompt. Separate alternatives by |."
            onChange={(event) => setTyped({ ...typed, wanted: event.target.value })}
          />
        </label>
        <label>
          and not
          <input
            className="field"
            value={unwanted}
            placeholder="optional"
            onChange={(event) => setTyped({ ...typed, unwanted: event.target.value })}
          />
        </label>
        <Button type="submit" icon="search" disabled={isEmpty}>
          Find experts
        </Button>
        {request !== null && (
          <Button
            variant="ghost"
            icon="close"
            aria-label="Close the search"
            onClick={() => {
              setTyped({});
              setParams({ wanted: "", unwanted: "" });
            }}
          />
        )}
      </form>
      {request !== null && <Found run={run.name} request={request} />}
    </section>
  );
}

/** A probability from which an expert is worth trying. */
const LIKELY = 0.01;

function Found({ run, request }: { readonly run: string; readonly request: FindRequest }) {
  const found = useQuery(findQuery(request));
  if (found.error !== null) return <ErrorState error={found.error} onRetry={() => void found.refetch()} />;
  if (found.data === undefined)
    return <LoadingState label="Searching; the language model is loaded on first use" rows={3} />;
  const { probability, experts } = found.data.found;
  const what = request.wanted?.length
    ? request.wanted.map((text) => `“${text.trim()}”`).join(" or ")
    : "no unwanted text";
  return (
    <>
      <p role="status">
        {what} follows with a probability of {formatProbability(probability)} %.{" "}
        {experts.length === 0
          ? "No expert makes it more probable."
          : experts.every((expert) => expert.probability < LIKELY) &&
            `None of these experts brings it to ${formatPercent(LIKELY, 0)} %, so they hardly make the model say it.`}
      </p>
      {experts.length > 0 && <FoundTable run={run} request={request} found={found.data} />}
    </>
  );
}

interface FoundTableProps {
  readonly run: string;
  readonly request: FindRequest;
  readonly found: FindResponse;
}

function FoundTable({ run, request, found }: FoundTableProps) {
  const { experts } = found.found;
  const prices = useQuery(pricesQuery(request, experts));
  return (
    <ScrollBox className="find-table" label="Experts found">
      <table>
        <thead>
          <tr>
            <th scope="col">Expert</th>
            <th scope="col" className="num">
              Strength
            </th>
            <th scope="col" className="num">
              Predicted <span className="unit">nats</span>
            </th>
            <th scope="col" className="num">
              Measured <span className="unit">nats</span>
            </th>
            <th scope="col" className="num">
              Probability <span className="unit">%</span>
            </th>
            <th scope="col" className="num">
              <Term id="edit_price">Price</Term> <span className="unit">nats</span>
            </th>
            <th scope="col" className="num">
              Random price
            </th>
            <th scope="col">
              <span className="sr">Add to tray</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {experts.map((expert, index) => (
            <FoundRow
              key={`${expert.edit.run}/${expert.edit.expert}`}
              run={run}
              expert={expert}
              info={found.experts[expert.edit.run ?? run]?.[expert.edit.expert]}
              price={prices.data?.[index]}
            />
          ))}
        </tbody>
      </table>
      {prices.error !== null && <ErrorState error={prices.error} />}
    </ScrollBox>
  );
}

interface FoundRowProps {
  readonly run: string;
  readonly expert: FoundExpert;
  readonly info: RoutedExpertInfo | undefined;
  /** Undefined until it is measured. */
  readonly price: { readonly price: number; readonly random_price: number } | undefined;
}

function FoundRow({ run, expert: { edit, ...effect }, info, price }: FoundRowProps) {
  const tray = useTray();
  const own = edit.run ?? run;
  const isInTray = tray.has(edit.expert, own);
  return (
    <tr>
      <th scope="row">
        <Link className="mono" to={pageLinks(own).expert(edit.expert)}>
          {own === run ? edit.expert : `${own}/${edit.expert}`}
        </Link>{" "}
        <ExpertLabel label={info?.label ?? null} automatic={info?.automatic} topTokens={info?.top_tokens ?? []} />
      </th>
      <td className="num" data-name="strength">
        {describeEdit({ mode: edit.mode, strength: edit.strength ?? 1 })}
      </td>
      <td className="num" data-name="predicted, nats">
        {formatSigned(effect.predicted)}
      </td>
      <td className="num" data-name="measured, nats">
        {formatSigned(effect.change)}
      </td>
      <td className="num" data-name="probability, %">
        {formatProbability(effect.probability)}
      </td>
      <td className="num" data-name="price, nats">
        {price === undefined ? "…" : formatFixed(price.price, 3)}
      </td>
      <td className="num dim" data-name="price of a random expert">
        {price === undefined ? "…" : formatFixed(price.random_price, 3)}
      </td>
      <td>
        <Button
          size="small"
          icon={isInTray ? "check" : "plus"}
          aria-label={`Expert ${edit.expert} in the tray`}
          aria-pressed={isInTray}
          onClick={() => (isInTray ? tray.remove(edit.expert, own) : tray.put(trayEdit(edit, run)))}
        />
      </td>
    </tr>
  );
}
