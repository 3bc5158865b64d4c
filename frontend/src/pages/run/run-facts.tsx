/** What was fitted, in one strip. */

import type { RunSummary } from "@/api/types";
import {
  activeK,
  gateName,
  hasHidden,
  methodName,
  shortOrigin,
  shortSource,
  writtenLayers,
} from "@/components/run-words";
import { formatCompact, formatCount } from "@/lib/format";

export function RunFacts({ run }: { readonly run: RunSummary }) {
  const facts: readonly (readonly [string, string, string?])[] = [
    ["Language model", shortSource(run.language_model), run.language_model],
    ["Method", hasHidden(run) ? `${methodName(run.method)}, ${run.activation}` : methodName(run.method)],
    run.layer === run.last_layer
      ? ["Layer", String(run.layer)]
      : ["Layers", writtenLayers(run), `Reads what the MLP of layer ${run.layer} reads, and writes all of these`],
    ["Experts N", formatCount(run.num_experts)],
    ["Active K", activeK(run)],
    ["Gate", gateName(run.gate)],
    ...(hasHidden(run) ? [["Hidden width H", formatCount(run.hidden_width)] as const] : []),
    ["Parameters", formatCompact(run.parameters)],
    ["Text", shortSource(run.text), run.text],
    ["Seed", String(run.seed)],
    ...(run.origin === null ? [] : [["Imported from", shortOrigin(run.origin), run.origin] as const]),
  ];
  return (
    <dl className="facts">
      {facts.map(([name, value, whole]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd className={whole === undefined ? "" : "mono"} title={whole}>
            {value}
          </dd>
        </div>
      ))}
    </dl>
  );
}
