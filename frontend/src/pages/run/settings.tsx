/** All settings of the run, folded. */

import type { RunDetail, RunSummary } from "@/api/types";
import {
  activeK,
  encoderActivation,
  hasHiddenLayer,
  methodName,
  mixingName,
  shortOrigin,
  shortSource,
} from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { formatCompact, formatCount } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";

const TERMS: Readonly<Record<string, TermId>> = {
  Method: "method",
  Layer: "layer",
  "Experts N": "expert",
  "Active K": "k",
};

function FactName({ name }: { readonly name: string }) {
  const term = TERMS[name];
  return term === undefined ? name : <Term id={term}>{name}</Term>;
}

/** Main properties of a run. */
function RunFacts({ run }: { readonly run: RunSummary }) {
  const mixing = mixingName(run);
  const facts: readonly (readonly [string, string, string?])[] = [
    ["Language model", run.language_model_name, run.language_model],
    ["Method", [methodName(run.method), encoderActivation(run)].filter((part) => part !== null).join(", ")],
    ["Layer", String(run.layer)],
    ["Experts N", formatCount(run.num_experts)],
    ["Active K", activeK(run)],
    ...(mixing === null ? [] : [["Mixing", mixing] as const]),
    ...(hasHiddenLayer(run) ? [["Hidden width H", formatCount(run.hidden_width)] as const] : []),
    ["Parameters", formatCompact(run.parameters)],
    ["Dataset", shortSource(run.text), run.text],
    ["Seed", String(run.seed)],
    ...(run.origin === null ? [] : [["Imported from", shortOrigin(run.origin), run.origin] as const]),
  ];
  return (
    <dl className="facts">
      {facts.map(([name, value, fullValue]) => (
        <div key={name}>
          <dt>
            <FactName name={name} />
          </dt>
          <dd className={fullValue === undefined ? "" : "mono"} title={fullValue}>
            {value}
          </dd>
        </div>
      ))}
    </dl>
  );
}

type Setting = RunDetail["config"][string] | undefined;

/** An empty list is no setting. */
const settingText = (value: Setting) =>
  value === null || value === undefined || value === "[]" ? "none" : String(value);

export function Settings({ detail }: { readonly detail: RunDetail }) {
  const shapes: RunDetail["config"] = {
    input_width: detail.input_width,
    output_width: detail.output_width,
    context_length: detail.context_length,
    index_text: detail.index_text,
  };
  const entries = Object.entries({ ...shapes, ...detail.config }).sort(([a], [b]) => a.localeCompare(b));
  return (
    <details className="settings more-metrics">
      <summary>
        Settings <span className="note">as recorded with the run</span>
      </summary>
      <RunFacts run={detail.run} />
      <dl>
        {entries.map(([name, value]) => (
          <div key={name}>
            <dt>{name.replaceAll("_", " ")}</dt>
            {/* The index keeps the path of its text; its name is enough here. */}
            <dd className="mono" title={settingText(value)}>
              {name === "index_text" ? shortSource(settingText(value)) : settingText(value)}
            </dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
