/** All stored contexts of an expert, from the strongest interval to the weakest, on one scale. */

import { useCallback } from "react";

import type { ExpertDetail, Interval } from "@/api/types";
import { Button } from "@/components/button";
import { Segmented } from "@/components/segmented";
import { useShortcut } from "@/components/shortcuts";
import type { ContextToken } from "@/components/tokens/concordance";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { formatFixed } from "@/lib/format";
import type { SetParams, Values } from "@/url-state";

import { ContextGroup } from "./context-group";
import { AT_RANDOM, type EXPERT_PARAMS } from "./expert-params";
import { usePromptLinks } from "./prompt-links";
import { RandomGroup } from "./random-group";

export interface ContextsProps {
  readonly run: string;
  readonly detail: ExpertDetail;
  readonly params: Values<typeof EXPERT_PARAMS>;
  readonly setParams: SetParams<typeof EXPERT_PARAMS>;
  readonly onHover: (coefficient: number | null) => void;
}

const same = (a: ContextToken | null, b: ContextToken) =>
  a?.interval === b.interval && a.rank === b.rank && a.position === b.position;

function ContextsHead({ detail, params, setParams }: Omit<ContextsProps, "run" | "onHover">) {
  return (
    <div className="contexts-head">
      <h2>Contexts</h2>
      <Segmented
        label="How contexts are shown"
        value={params.view}
        onChange={(view) => setParams({ view })}
        segments={[
          { value: "aligned", label: "Aligned" },
          { value: "snippet", label: "Snippet" },
          { value: "full", label: "Full" },
        ]}
      />
      <Button
        size="small"
        variant={params.breaks ? "chosen" : "ghost"}
        aria-pressed={params.breaks}
        onClick={() => setParams({ breaks: !params.breaks })}
      >
        Show ↵
      </Button>
      <span className="grow" />
      <RampLegend kind="sequential" low="Coefficient 0" high={formatFixed(detail.row.largest)} />
    </div>
  );
}

/** What every group of contexts of the expert is given. */
function useGroups({ run, detail, params, setParams, onHover }: ContextsProps) {
  const { lock, open } = params;
  const { expert, largest } = detail.row;
  const onLock = useCallback(
    (token: ContextToken) => setParams({ lock: same(lock, token) ? null : token }),
    [lock, setParams],
  );
  const promptLinks = usePromptLinks(expert);
  const isGroupOpen = (group: number) => ({
    isOpen: open.includes(group),
    onOpen: (isOpen: boolean) => {
      const others = open.filter((number) => number !== group);
      setParams({ open: isOpen ? [...others, group].sort((a, b) => a - b) : others });
    },
  });
  const { view: mode, breaks: showBreaks } = params;
  const shared = { run, expert, largest, mode, showBreaks, onHover, locked: lock, onLock, promptLinks };
  return { shared, isGroupOpen };
}

const isFilled = (interval: Interval) => interval.contexts > 0;

function Groups({ intervals, ...props }: ContextsProps & { readonly intervals: readonly Interval[] }) {
  const { shared, isGroupOpen } = useGroups(props);
  return intervals.map((interval) => (
    <ContextGroup
      key={`${shared.expert}-${interval.interval}`}
      interval={interval}
      {...isGroupOpen(interval.interval)}
      {...shared}
    />
  ));
}

/** The strongest interval, under how all of them are shown. */
export function TopContexts(props: ContextsProps) {
  const { detail, params, setParams } = props;
  useShortcut("release", () => setParams({ lock: null }), params.lock !== null);
  return (
    <>
      <ContextsHead detail={detail} params={params} setParams={setParams} />
      <Groups {...props} intervals={detail.intervals.filter(isFilled).slice(0, 1)} />
    </>
  );
}

/** The weaker intervals, then contexts at random over all. */
export function MoreContexts(props: ContextsProps) {
  const { shared, isGroupOpen } = useGroups(props);
  const { detail, params, setParams } = props;
  const { lock, draw } = params;
  return (
    <>
      <Groups {...props} intervals={detail.intervals.filter(isFilled).slice(1)} />
      <RandomGroup
        key={shared.expert}
        seed={draw}
        onDraw={(next) => setParams({ draw: next, ...(lock?.interval === AT_RANDOM && { lock: null }) })}
        {...isGroupOpen(AT_RANDOM)}
        {...shared}
      />
    </>
  );
}
