/** Estimate of the time that is left of a long task. */

import { useState } from "react";

import { useNow } from "@/hooks/use-values";
import { formatDuration } from "@/lib/text/format";

const CLOCK_MS = 5000;
/** A shorter time is not shown: the last step often takes longer than its estimate. */
const MIN_SHOWN_MS = 1000;

interface RemainingProps {
  readonly done: number;
  readonly total: number;
  /** Progress between estimates. */
  readonly every: number;
}

/**
 * Time that the rest takes if it is as fast as everything since the first progress shown. Counted from the end of the
 * last step, so that it does not grow during a step.
 */
export function Remaining({ done, total, every }: RemainingProps) {
  const now = useNow(CLOCK_MS);
  const [start] = useState({ done, at: now });
  const [last, setLast] = useState(start);
  if (done - last.done >= every) setLast({ done, at: now });
  const numDone = last.done - start.done;
  if (numDone === 0 || done >= total) return null;
  const left = ((last.at - start.at) / numDone) * (total - last.done) - (now - last.at);
  if (left < MIN_SHOWN_MS) return null;
  return <>, about {formatDuration(left / 1000)} left</>;
}
