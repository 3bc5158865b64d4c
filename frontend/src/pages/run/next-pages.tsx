/** Pages that answer the next questions about a run. */

import type { RunSummary } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { inUnits, unitName } from "@/components/runs/run-labels";
import { LinkButton } from "@/components/ui/button";
import { formatCount } from "@/lib/text/format";

interface Step {
  readonly label: string;
  readonly to: string;
}

function steps(run: RunSummary, runs: readonly RunSummary[]): readonly Step[] {
  const { page } = pageLinks(run.name);
  const isIndexed = run.active_experts !== null;
  const partner = runs.find(
    ({ name, language_model: model, layer }) =>
      name !== run.name && model === run.language_model && layer === run.layer,
  );
  return [
    ...(isIndexed
      ? [{ label: `Browse ${formatCount(run.active_experts ?? 0)} active ${unitName(run)}`, to: page("experts") }]
      : []),
    { label: "Route a prompt", to: page("routing") },
    { label: inUnits("Steer with an expert", run), to: page("steering") },
    ...(partner === undefined
      ? []
      : [{ label: `Compare with ${partner.name}`, to: `${page("evaluate", { with: partner.name })}#compare` }]),
    ...(run.evaluated_k.length > 1
      ? [{ label: inUnits("Loss at fewer active experts", run), to: `${page("evaluate")}#frontier` }]
      : []),
    ...(run.held_out === null
      ? []
      : [{ label: inUnits("Dead, dense and duplicate experts", run), to: page("evaluate") }]),
  ];
}

export function NextPages({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  return (
    <nav className="next-pages" aria-label="Next steps">
      {steps(run, runs).map(({ label, to }) => (
        <LinkButton key={label} size="small" to={to}>
          {label}
        </LinkButton>
      ))}
    </nav>
  );
}
