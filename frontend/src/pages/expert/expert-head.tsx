/** Name of the expert and what can be done with it. */

import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useNavigate } from "react-router";

import { useSetLabel } from "@/api/mutations";
import { contextsQuery, expertQuery, fetchRandomExpert, randomContextsQuery } from "@/api/queries";
import type { ExpertDetail } from "@/api/types";
import { Button, LinkButton } from "@/components/button";
import { ExpertLabel } from "@/components/expert-ref";
import { usePageLinks } from "@/components/links";
import { AddToList } from "@/components/lists/add-to-list";
import { ExpertTags } from "@/components/lists/expert-tags";
import { useShortcut } from "@/components/shortcuts";
import { useTray } from "@/components/tray/tray-context";
import { joinTokens } from "@/lib/kwic";

import { CONTEXTS_PER_PAGE } from "./shown-contexts";
import { TextEditor } from "./text-editor";

interface ExpertHeadProps {
  readonly run: string;
  readonly detail: ExpertDetail;
}

function LabelLine({ run, detail }: ExpertHeadProps) {
  const [editing, setEditing] = useState(false);
  const saving = useSetLabel(run, detail.row.expert);
  useShortcut("label", () => setEditing(true));
  if (editing) {
    return (
      <>
        <h1 className="sr">Expert {detail.row.expert}</h1>
        <TextEditor
          label="Label"
          initial={detail.row.label ?? detail.row.automatic?.label ?? ""}
          maxLength={200}
          lines={1}
          isSaving={saving.isPending}
          error={saving.error}
          onSave={(text) => saving.mutate(text, { onSuccess: () => setEditing(false) })}
          onCancel={() => setEditing(false)}
        />
      </>
    );
  }
  const tokens = detail.row.top_tokens.map((token) => token.text);
  return (
    <div className="label-line">
      <h1>
        {detail.row.label === null && tokens.length > 0 && (
          <span className="sr">Expert {detail.row.expert}, no label of a person yet: </span>
        )}
        {tokens.length === 0 && detail.row.label === null ? (
          `Expert ${detail.row.expert}`
        ) : (
          <ExpertLabel label={detail.row.label} automatic={detail.row.automatic} topTokens={tokens} />
        )}
      </h1>
      <Button size="small" variant="ghost" shortcut="label" onClick={() => setEditing(true)}>
        {detail.row.label === null ? "Give it a label" : "Edit label"}
      </Button>
    </div>
  );
}

/** Goes to another expert and keeps how contexts are shown, not what was locked. */
function useGoTo() {
  const navigate = useNavigate();
  const links = usePageLinks();
  return (expert: number) => {
    const view = new URLSearchParams(window.location.search);
    const kept = Object.fromEntries([...view].filter(([name]) => ["view", "breaks", "by", "test"].includes(name)));
    void navigate(links.expert(expert, kept));
  };
}

/** This expert's own contexts have been painted by then. */
const AFTER_MS = 20;

/** Fetches what the neighbours show, once this expert is there, so that going on needs no waiting: first what is seen
 *  first of the next one and the one before, then the rest. */
function usePrefetched(run: string, { next, previous }: ExpertDetail) {
  const queries = useQueryClient();
  useEffect(() => {
    let isLeft = false;
    const contextsOf = (detail: ExpertDetail, wanted: (interval: number) => boolean) =>
      detail.intervals
        .filter(({ interval, contexts }) => contexts > 0 && wanted(interval))
        .map(({ interval }) =>
          queries.infiniteQuery(contextsQuery(run, detail.row.expert, interval, CONTEXTS_PER_PAGE)),
        );
    const fetchNeighbours = async () => {
      const details: ExpertDetail[] = [];
      for (const expert of [next, previous]) {
        if (expert === null || isLeft) continue;
        const detail = await queries.query(expertQuery(run, expert));
        await Promise.all(contextsOf(detail, (interval) => interval === 0));
        details.push(detail);
      }
      for (const detail of details) {
        if (isLeft) return;
        const random = queries.query(randomContextsQuery(run, detail.row.expert, 0));
        await Promise.all([random, ...contextsOf(detail, (interval) => interval > 0)]);
      }
    };
    // What fails here is asked for again, and said, on the expert's own page.
    const waiting = setTimeout(() => void fetchNeighbours().catch(() => undefined), AFTER_MS);
    return () => {
      isLeft = true;
      clearTimeout(waiting);
    };
  }, [queries, run, previous, next]);
}

function Neighbours({ run, detail }: ExpertHeadProps) {
  const goTo = useGoTo();
  const { previous, next } = detail;
  usePrefetched(run, detail);
  const random = () => void fetchRandomExpert(run).then(({ expert }) => goTo(expert));
  useShortcut("previous", () => previous !== null && goTo(previous));
  useShortcut("next", () => next !== null && goTo(next));
  useShortcut("random", random);
  return (
    <>
      <div className="btngroup">
        <Button
          icon="chevronLeft"
          shortcut="previous"
          disabled={previous === null}
          onClick={() => previous !== null && goTo(previous)}
        >
          <span className="sr">Previous expert</span>
          {previous ?? "none"}
        </Button>
        <Button
          icon="chevronRight"
          shortcut="next"
          disabled={next === null}
          onClick={() => next !== null && goTo(next)}
        >
          <span className="sr">Next expert</span>
          {next ?? "none"}
        </Button>
      </div>
      <Button icon="dice" shortcut="random" onClick={random}>
        Random
      </Button>
    </>
  );
}

function UseInPrompt({ run, expert }: { readonly run: string; readonly expert: number }) {
  const links = usePageLinks();
  const { data } = useInfiniteQuery(contextsQuery(run, expert, 0, CONTEXTS_PER_PAGE));
  const strongest = data?.pages[0]?.contexts[0];
  const prompt = strongest === undefined ? {} : { prompt: joinTokens(strongest).trim() };
  return (
    <LinkButton icon="routing" to={links.page("routing", prompt)}>
      Use in a prompt
    </LinkButton>
  );
}

export function ExpertHead({ run, detail }: ExpertHeadProps) {
  const { expert } = detail.row;
  const tray = useTray();
  const inTray = tray.has(expert);
  useShortcut("tray", () => tray.toggle(expert));
  return (
    <section className="expert-head">
      <div className="expert-name">
        <p className="eid">
          <span className="mono">{expert}</span> <span className="dim">in</span> <span className="mono">{run}</span>
        </p>
        <LabelLine run={run} detail={detail} />
        <ExpertTags run={run} expert={expert} tags={detail.row.tags} />
      </div>
      <div className="expert-acts">
        <Neighbours run={run} detail={detail} />
        {detail.row.active_tokens > 0 && <UseInPrompt run={run} expert={expert} />}
        <AddToList
          run={run}
          experts={[expert]}
          inside={detail.lists}
          label={detail.lists.length === 0 ? "Add to list" : detail.lists.map((list) => list.name).join(", ")}
        />
        <Button
          variant={inTray ? "chosen" : "primary"}
          icon={inTray ? "check" : "plus"}
          shortcut="tray"
          aria-pressed={inTray}
          onClick={() => tray.toggle(expert)}
        >
          {inTray ? "In tray" : "Add to tray"}
        </Button>
      </div>
    </section>
  );
}
