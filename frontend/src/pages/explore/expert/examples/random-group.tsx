/** A random sample of the expert's activations, regardless of their bin. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";

import { randomExamplesQuery } from "@/api/queries";
import type { RandomExamples } from "@/api/types";
import { Concordance, type ConcordanceProps } from "@/components/tokens/concordance";
import { Button } from "@/components/ui/button";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount } from "@/lib/text/format";
import { RANDOM_GROUP } from "@/pages/explore/expert/expert-params";

import { useTopExamples } from "./context-group";
import { withoutShown } from "./deduplicate-contexts";
import { GroupCount } from "./group-count";
import { asRandomGroup, previewCount, selectShown } from "./shown-contexts";

/** A smaller sample repeats the bins above and says nothing about all activations. */
const MIN_SAMPLE = 5;

interface RandomGroupProps extends Omit<ConcordanceProps, "contexts"> {
  readonly run: string;
  readonly expert: number;
  readonly seed: number;
  readonly onResample: (seed: number) => void;
  readonly isOpen: boolean;
  readonly onOpen: (open: boolean) => void;
}

/** Explains how the sample was drawn and why it may be short. */
function SampleDescription({ sample }: { readonly sample: RandomExamples }) {
  const count = sample.examples.length;
  if (count === sample.active_tokens) {
    return <p className="dim">All of its activations, in random order; seed {sample.seed}.</p>;
  }
  return (
    <p className="dim">
      Seed {sample.seed}: a random sample weighted by bin, as if from all {formatCount(sample.active_tokens)}{" "}
      activations. Each draw picks a bin by its share of the activations, then one of the examples stored for it.
      {sample.exhausted_bin !== null && (
        <>
          {" "}
          Sampling stopped because bin {sample.exhausted_bin} had no stored examples left. Index with a larger{" "}
          <code>--examples-per-bin</code> to store more.
        </>
      )}
    </p>
  );
}

export function RandomGroup({ seed, onResample, isOpen, onOpen, ...props }: RandomGroupProps) {
  const { run, expert, ...concordance } = props;
  const sampleQuery = randomExamplesQuery(run, expert, seed);
  const { data, error, refetch } = useQuery({ ...sampleQuery, placeholderData: keepPreviousData });
  const top = useTopExamples(run, expert);
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading random sample" rows={previewCount(RANDOM_GROUP)} />;
  if (data.examples.length === 0) return null;
  const { locked = null } = concordance;
  const unseen = withoutShown(asRandomGroup(data.examples), top);
  const numInTop = data.examples.length - unseen.length;
  const shown = selectShown(unseen, { group: RANDOM_GROUP, isOpen, locked });
  const isTooSmall = data.examples.length < Math.min(MIN_SAMPLE, data.active_tokens);
  if (unseen.length === 0) return null;
  if (isTooSmall && seed === 0 && locked?.bin !== RANDOM_GROUP) return null;
  return (
    <section className="group" aria-label="Random sample">
      <header>
        <h3>Random sample</h3>
        <span className="dim extra">of all activations</span>
        <span className="grow" />
        <Button size="small" variant="ghost" icon="dice" onClick={() => onResample(seed + 1)}>
          Resample
        </Button>
        <GroupCount
          text={`${shown.length} of ${data.examples.length}`}
          isAll={shown.length >= unseen.length}
          isOpen={isOpen}
          onOpen={onOpen}
        />
      </header>
      <Concordance contexts={shown} {...concordance} />
      {numInTop > 0 && (
        <p className="dim">
          {numInTop === 1 ? "1 more of the sample is" : `${numInTop} more of the sample are`} among the top examples
          above.
        </p>
      )}
      <SampleDescription sample={data} />
    </section>
  );
}
