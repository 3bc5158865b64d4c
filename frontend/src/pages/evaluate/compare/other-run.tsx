/** Header of a comparison, and the choice of the second run. */

import { ListBox, Popover, Select, SelectValue } from "react-aria-components";
import { Link } from "react-router";

import type { RunSummary } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { runSummaryLine } from "@/components/runs/run-labels";
import { RunOption } from "@/components/runs/run-option";
import { Button } from "@/components/ui/button";
import { TriggerButton } from "@/components/ui/button";
import { Command } from "@/components/ui/copyable-command";
import { Icon } from "@/components/ui/icon";
import { EmptyState } from "@/components/ui/states";

interface OtherRunProps {
  readonly other: string | null;
  readonly others: readonly RunSummary[];
  readonly onOther: (name: string) => void;
}

function OtherRunSelect({ other, others, onOther }: OtherRunProps) {
  return (
    <Select
      aria-label="Compare with"
      className="compare-other"
      value={other}
      onChange={(key) => {
        if (key !== null && key !== other) onOther(String(key));
      }}
    >
      <TriggerButton className="btn">
        <SelectValue className="mono">{() => other ?? "Choose a run"}</SelectValue>
        <Icon name="chevronDown" />
      </TriggerButton>
      <Popover className="popover" placement="bottom start">
        <ListBox items={others.map((run) => ({ run, id: run.name }))}>{({ run }) => <RunOption run={run} />}</ListBox>
      </Popover>
    </Select>
  );
}

interface CompareHeadProps extends OtherRunProps {
  readonly run: RunSummary;
  readonly onSwap: () => void;
}

export function CompareHead({ run, other, others, onOther, onSwap }: CompareHeadProps) {
  return (
    <section className="compare-head" aria-label="Compared runs">
      <h1 className="sr">{other === null ? `Compare ${run.name}` : `${run.name} and ${other}`}</h1>
      <Link className="mono" to={pageLinks(null).run(run.name)}>
        {run.name}
      </Link>
      {others.length > 0 && (
        <>
          <span className="ink2">with</span>
          <OtherRunSelect other={other} others={others} onOther={onOther} />
        </>
      )}
      {other !== null && (
        <Button size="small" icon="reset" title="Match each expert of the other run to this one" onClick={onSwap}>
          Swap
        </Button>
      )}
    </section>
  );
}

/** Whether the losses of two runs are comparable. */
export const isSameMlp = (one: RunSummary, other: RunSummary) =>
  one.language_model === other.language_model && one.layer === other.layer;

/** Pairs of other runs that replace the same MLP, for a run that has no such partner. */
function ComparablePairs({ runs }: { readonly runs: readonly RunSummary[] }) {
  const pairs = runs.flatMap((one, i) =>
    runs.slice(i + 1).flatMap((other) => (isSameMlp(one, other) ? [[one, other] as const] : [])),
  );
  if (pairs.length === 0) return null;
  return (
    <>
      <p>Two runs of one MLP, whose losses are comparable:</p>
      <ul className="compare-choices">
        {pairs.map(([one, other]) => (
          <li key={`${one.name} ${other.name}`}>
            <Link to={pageLinks(one.name).page("compare", { with: other.name })}>
              <span className="mono">{one.name}</span> and <span className="mono">{other.name}</span>
            </Link>{" "}
            layer {one.layer}
          </li>
        ))}
      </ul>
    </>
  );
}

/** The runs to choose from, or the command that creates a second one. */
export function ChooseOtherRun({ run, others }: { readonly run: RunSummary; readonly others: readonly RunSummary[] }) {
  if (others.length === 0) {
    const { language_model: model, layer, text, target_tokens: tokens, k } = run;
    return (
      <EmptyState title="Only one run">
        Train a second run with another seed, K or method, and compare what changes.
        <Command text={`mxd train ${model} --layer ${layer} --dataset ${text} --tokens ${tokens} --k ${k} --seed 1`} />
      </EmptyState>
    );
  }
  // Runs of the same MLP are comparable, so they come first.
  const isComparable = (other: RunSummary) => isSameMlp(run, other);
  const sorted = [...others].sort((a, b) => Number(isComparable(b)) - Number(isComparable(a)));
  const hasPartner = sorted.some(isComparable);
  return (
    <EmptyState title="Choose a second run">
      {!hasPartner && <ComparablePairs runs={others} />}
      <p>
        {hasPartner
          ? `Runs of layer ${run.layer} replace the same MLP and come first.`
          : `No other run replaces the MLP of layer ${run.layer}. Runs to compare with ${run.name} by their experts, but not by their losses:`}
      </p>
      <ul className="compare-choices">
        {sorted.map((other) => (
          <li key={other.name}>
            <Link className="mono" to={pageLinks(run.name).page("compare", { with: other.name })}>
              {other.name}
            </Link>{" "}
            {runSummaryLine(other)}
            {other.indexed_tokens === null && ", not indexed"}
          </li>
        ))}
      </ul>
    </EmptyState>
  );
}
