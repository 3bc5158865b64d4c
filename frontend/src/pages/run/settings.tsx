/** All settings of the run, folded. */

import type { RunDetail } from "@/api/types";
import { shortSource } from "@/components/runs/run-labels";

type Setting = RunDetail["config"][string] | undefined;

/** An empty list is no setting. */
const settingText = (value: Setting) =>
  value === null || value === undefined || value === "[]" ? "none" : String(value);

export function Settings({ detail }: { readonly detail: RunDetail }) {
  const { activation, hidden_width, mixing, parameters } = detail.run;
  const derived: RunDetail["config"] = {
    activation,
    hidden_width,
    parameters,
    ...(mixing !== null && { mixing }),
    input_width: detail.input_width,
    output_width: detail.output_width,
    context_length: detail.context_length,
    index_text: detail.index_text,
  };
  const entries = Object.entries({ ...detail.config, ...derived }).sort(([a], [b]) => a.localeCompare(b));
  return (
    <details className="settings more-metrics">
      <summary>
        Settings <span className="note">as recorded with the run</span>
      </summary>
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
