/** The two runs at the head of a comparison, and what stands there while there is no second one. */

import { ListBox, Popover, Select, SelectValue } from "react-aria-components";
import { Link } from "react-router";

import type { RunSummary } from "@/api/types";
import { Button } from "@/components/button";
import { Command } from "@/components/command";
import { Icon } from "@/components/icon";
import { pageLinks } from "@/components/links";
import { RunOption, runLine } from "@/components/shell/run-chooser";
import { EmptyState } from "@/components/states";
import { TriggerButton } from "@/components/trigger-button";

interface OtherRunProps {
  readonly other: string | null;
  readonly others: readonly RunSummary[];
  readonly onOther: (name: string) => void;
}

function OtherRun({ other, others, onOther }: OtherRunProps) {
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
    <section className="compare-head" aria-label="The two runs">
      <h1 className="sr">{other === null ? `Compare ${run.name}` : `${run.name} and ${other}`}</h1>
      <Link className="mono" to={pageLinks(null).run(run.name)}>
        {run.name}
      </Link>
      {others.length > 0 && (
        <>
          <span className="ink2">with</span>
          <OtherRun other={other} others={others} onOther={onOther} />
        </>
      )}
      {other !== null && (
        <Button size="small" icon="reset" title="Each expert of the other run, with its nearest here" onClick={onSwap}>
          Swap
        </Button>
      )}
    </section>
  );
}

/** The runs to choose from, or the command that makes a second one. */
export function NoOther({ run, others }: { readonly run: RunSummary; readonly others: readonly RunSummary[] }) {
  if (others.length === 0) {
    const { language_model: model, layer, text, tokens_wanted: tokens, k } = run;
    return (
      <EmptyState title="There is only one run">
        A second fit shows what is the layer&apos;s and what is chance: with another seed, another K, or another method.
        <Command text={`mxd train ${model} --layer ${layer} --text ${text} --tokens ${tokens} --k ${k} --seed 1`} />
      </EmptyState>
    );
  }
  return (
    <EmptyState title="With which run?">
      <ul className="compare-choices">
        {others.map((other) => (
          <li key={other.name}>
            <Link className="mono" to={pageLinks(run.name).page("compare", { with: other.name })}>
              {other.name}
            </Link>{" "}
            {runLine(other)}
            {other.indexed_tokens === null && ", not indexed"}
          </li>
        ))}
      </ul>
    </EmptyState>
  );
}
