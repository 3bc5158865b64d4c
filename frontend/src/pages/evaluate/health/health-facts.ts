/** The health metrics that apply to a run, in the words of its method. */

import type { Fact, RunSummary } from "@/api/types";
import { inUnits } from "@/components/runs/run-labels";

/** Group of the shared experts; its first row is their number, under the same name. */
const ALWAYS_ON = "Always-on experts";

/** Leaves out metrics that were not measured, such as the rank of vectors, and shares of always-on experts if there are none. */
export function measuredFacts(facts: readonly Fact[]): readonly Fact[] {
  const hasAlwaysOn = facts.some(({ name, value }) => name === ALWAYS_ON && (value ?? 0) > 0);
  return facts.filter(
    ({ name, value, group }) => value !== null && (hasAlwaysOn || group !== ALWAYS_ON || name === ALWAYS_ON),
  );
}

/** The measured facts, of features if the method has these. */
export function healthFacts(facts: readonly Fact[], run: Pick<RunSummary, "method">): readonly Fact[] {
  return measuredFacts(facts).map((fact) => ({
    ...fact,
    name: inUnits(fact.name, run),
    description: inUnits(fact.description, run),
    ...(fact.group != null && { group: inUnits(fact.group, run) }),
  }));
}
