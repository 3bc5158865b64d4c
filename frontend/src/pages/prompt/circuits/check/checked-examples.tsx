/** Example prompts, which are traced and checked one after the other while the page is open. */

import { type QueryClient, queryOptions, useQueries, useQueryClient } from "@tanstack/react-query";

import { type CircuitRequest, circuitEffectsQuery, circuitQuery, measureEffects, traceCircuit } from "@/api/circuits";
import { ablatedExperts } from "@/pages/prompt/circuits/panel/ablation-groups";

import { type Example, EXAMPLES, examplesStatus, nextToCheck } from "./examples";
import { checkedIds } from "./use-check";
import { type Verdict, verdict } from "./verdict";

/** In milliseconds: the page is painted before the server begins to compute. */
const PAUSE = 800;

/** Traces a prompt and measures its graph. Both responses stay cached for the page of the prompt. */
async function check(
  queries: QueryClient,
  request: CircuitRequest,
  nodes: number,
  signal: AbortSignal,
): Promise<Verdict | null> {
  await new Promise((resolve) => setTimeout(resolve, PAUSE));
  signal.throwIfAborted();
  const response = await traceCircuit(request, nodes, signal);
  queries.setQueryData(circuitQuery(request, nodes).queryKey, response);
  const ids = checkedIds(response);
  if (ids.length === 0) return null;
  const groups = ids.map((id) => ablatedExperts(response, [id]));
  const target = response.graph.target.id;
  const asked = { ...request, target };
  const effects = await measureEffects(asked, groups, signal);
  queries.setQueryData(circuitEffectsQuery(asked, groups).queryKey, effects);
  const experts = response.graph.nodes.filter(({ kind }) => kind === "expert").length;
  return verdict(effects.agreement, ids.length, experts, response.graph.origins);
}

/** Cancelled with its requests when the page no longer shows it. */
function checkQuery(queries: QueryClient, request: CircuitRequest, nodes: number) {
  return queryOptions({
    queryKey: ["run", request.runs[0], "circuit-example", request, nodes],
    queryFn: ({ signal }) => check(queries, request, nodes, signal),
    retry: false,
    staleTime: Infinity,
  });
}

/** The results so far; one example is checked at a time, so that the server stays responsive. */
function useExamples(request: CircuitRequest, nodes: number): readonly Example[] {
  const queries = useQueryClient();
  const each = EXAMPLES.map((text) => checkQuery(queries, { ...request, text }, nodes));
  const known = each.map(({ queryKey }, i): Example => {
    const state = queries.getQueryState<Verdict | null>(queryKey);
    return { prompt: EXAMPLES[i] ?? "", found: state?.status === "error" ? null : state?.data };
  });
  const next = nextToCheck(known);
  const results = useQueries({ queries: each.map((query, i) => ({ ...query, enabled: i === next })) });
  return known.map(({ prompt }, i) => ({ prompt, found: results[i]?.isError === true ? null : results[i]?.data }));
}

const summary = ({ headline, figures: [direction, correlation], checked }: Verdict) =>
  `${headline}. Directions ${direction?.value}, ${correlation?.value === "–" ? "" : `${correlation?.value}, `}n = ${checked}`;

interface CheckedExamplesProps {
  /** The request of the page, without its text. */
  readonly request: CircuitRequest;
  readonly nodes: number;
  readonly onChoose: (prompt: string) => void;
}

export function CheckedExamples({ request, nodes, onChoose }: CheckedExamplesProps) {
  const examples = useExamples(request, nodes);
  const next = nextToCheck(examples);
  return (
    <div className="example-prompts">
      <p className="dim" role="status">
        {examplesStatus(examples)}
      </p>
      {examples.map(({ prompt, found }) => (
        <div key={prompt} className="checked-example">
          <button type="button" className="btn" onClick={() => onChoose(prompt)}>
            {prompt}
          </button>
          <span className="example-verdict" data-level={found?.level}>
            {found === undefined
              ? prompt === EXAMPLES[next ?? -1]
                ? "Checking…"
                : next === null
                  ? "Checked when it is opened"
                  : "Not checked yet"
              : found === null
                ? "Could not be checked"
                : summary(found)}
          </span>
        </div>
      ))}
    </div>
  );
}
