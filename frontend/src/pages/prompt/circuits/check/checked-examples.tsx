/** Example prompts of which each has been traced and checked, the most reliable graph first. */

import { type QueryClient, queryOptions, useQuery, useQueryClient } from "@tanstack/react-query";

import { type CircuitRequest, circuitEffectsQuery, circuitQuery } from "@/api/circuits";
import { useExamplePrompts } from "@/components/prompt/use-example-prompts";
import { continuationPrompt } from "@/lib/text/prompts";
import { ablatedExperts } from "@/pages/prompt/circuits/panel/ablation-groups";

import { checkedIds } from "./use-check";
import { type Verdict, verdict } from "./verdict";

interface CheckedExample {
  readonly prompt: string;
  /** Null if nothing could be measured. */
  readonly found: Verdict | null;
}

const LEVELS = ["good", "weak", "bad"] as const;
const rank = ({ found }: CheckedExample) => (found === null ? LEVELS.length : LEVELS.indexOf(found.level));

/** Traces a prompt and measures its graph. Both responses stay cached for the page of the prompt. */
async function check(queries: QueryClient, request: CircuitRequest, nodes: number): Promise<Verdict | null> {
  const response = await queries.query({ ...circuitQuery(request, nodes), staleTime: "static" });
  const ids = checkedIds(response);
  if (ids.length === 0) return null;
  const groups = ids.map((id) => ablatedExperts(response, [id]));
  const target = response.graph.target.id;
  const { agreement } = await queries.query({
    ...circuitEffectsQuery({ ...request, target }, groups),
    staleTime: "static",
  });
  return verdict(agreement, ids.length, response.graph.nodes.filter(({ kind }) => kind === "expert").length);
}

/** One prompt at a time, so that the server stays responsive. */
function checksQuery(queries: QueryClient, prompts: readonly string[], request: CircuitRequest, nodes: number) {
  return queryOptions({
    queryKey: ["run", request.runs[0], "circuit-examples", request, prompts, nodes],
    queryFn: async ({ signal }) => {
      const checked: CheckedExample[] = [];
      for (const prompt of prompts) {
        signal.throwIfAborted();
        checked.push({ prompt, found: await check(queries, { ...request, text: prompt }, nodes) });
      }
      return checked.toSorted((a, b) => rank(a) - rank(b));
    },
    enabled: prompts.length > 0,
    staleTime: Infinity,
  });
}

interface CheckedExamplesProps {
  readonly run: string;
  /** The request of the page, without its text. */
  readonly request: CircuitRequest;
  readonly nodes: number;
  readonly onChoose: (prompt: string) => void;
}

export function CheckedExamples({ run, request, nodes, onChoose }: CheckedExamplesProps) {
  const prompts = useExamplePrompts(run, continuationPrompt);
  const { data, error } = useQuery(checksQuery(useQueryClient(), prompts, request, nodes));
  if (prompts.length === 0) return null;
  const examples: readonly CheckedExample[] = data ?? prompts.map((prompt) => ({ prompt, found: null }));
  const isAnyUsable = data?.some(({ found }) => found !== null && found.level !== "bad") ?? true;
  const unknown = data === undefined && error === null ? "Checking its graph…" : "Its graph is not checked";
  return (
    <div className="example-prompts">
      <span className="dim" role="status">
        {isAnyUsable
          ? "Or start from an example, the most reliable graph first:"
          : "Or start from an example. None of these graphs is reliable with the chosen layers:"}
      </span>
      {examples.map(({ prompt, found }) => (
        <div key={prompt} className="checked-example">
          <button type="button" className="btn" onClick={() => onChoose(prompt)}>
            {prompt}
          </button>
          <span className="example-verdict" data-level={found?.level}>
            {found?.headline ?? unknown}
          </span>
        </div>
      ))}
    </div>
  );
}
