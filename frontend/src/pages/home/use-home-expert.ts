/** The expert of the home page: the one in the address, else the one most worth seeing. */

import { useBestExperts } from "@/components/best-experts";
import { useShortcut } from "@/components/shortcuts";
import { useUrlState } from "@/url-state";

import { HOME_PARAMS } from "./home-params";

export function useHomeExpert(run: string) {
  const [{ expert: asked }, setParams] = useUrlState(HOME_PARAMS);
  const { experts, isPending, error } = useBestExperts(run);
  const expert = asked ?? experts[0]?.expert ?? null;
  const another = () => {
    const next = experts[(experts.findIndex((row) => row.expert === expert) + 1) % experts.length];
    if (next !== undefined) setParams({ expert: next.expert, prompt: null, token: null, ask: null }, "push");
  };
  useShortcut("random", another);
  return { expert, another, isPending: asked === null && isPending, error };
}
