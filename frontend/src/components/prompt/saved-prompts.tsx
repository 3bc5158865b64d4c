/** Saved sessions to start from, shown while a page has no prompt: what each of them edits. */

import { useInfiniteQuery, useQueries } from "@tanstack/react-query";
import { Link } from "react-router";

import { expertsQuery, sessionsQuery } from "@/api/queries";
import type { RunSummary, SessionSummary } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { useCurrentRun } from "@/components/runs/current-run";
import { sessionUrl } from "@/components/runs/page-links";
import { layerLabel } from "@/components/runs/run-labels";
import { describeEdit } from "@/lib/edits/edits";
import { formatPlural } from "@/lib/text/format";
import { toOneLine } from "@/lib/text/token-text";

/** Of the run, and of each other one; the Sessions menu lists all. */
const MAX_SESSIONS = 6;
const MAX_OTHER_SESSIONS = 3;
const MAX_RUNS = 8;

interface RunSessions {
  readonly run: RunSummary;
  readonly sessions: readonly SessionSummary[];
  /** Number of its sessions that are not among `sessions`. */
  readonly more: number;
}

/** Sessions of the run, then those of other runs of its language model, by layer; undefined while loading. */
function useSavedSessions(run: RunSummary): readonly RunSessions[] | undefined {
  const { runs } = useCurrentRun();
  const others = runs
    .filter(({ name, language_model: model }) => name !== run.name && model === run.language_model)
    .toSorted((a, b) => a.layer - b.layer);
  const listed = [run, ...others].slice(0, MAX_RUNS);
  const results = useQueries({ queries: listed.map(({ name }) => sessionsQuery(name)) });
  if (results.some(({ isPending }) => isPending)) return undefined;
  return listed.flatMap((each, i) => {
    const all = results[i]?.data?.sessions ?? [];
    const sessions = all.slice(0, i === 0 ? MAX_SESSIONS : MAX_OTHER_SESSIONS);
    return sessions.length === 0 ? [] : [{ run: each, sessions, more: all.length - sessions.length }];
  });
}

/** The experts that sessions amplify, by number. */
function useExperts({ run, sessions }: RunSessions) {
  const among = sessions.flatMap(({ expert }) => expert ?? []).join(",");
  const { data } = useInfiniteQuery({
    ...expertsQuery(run.name, { sort: "expert", order: "asc", among }, MAX_SESSIONS),
    enabled: among !== "" && run.indexed_tokens !== null,
  });
  return new Map(data?.pages[0]?.experts.map((row) => [row.expert, row]));
}

function RunGroup(props: RunSessions) {
  const { runs } = useCurrentRun();
  const experts = useExperts(props);
  const { run, sessions, more } = props;
  return (
    <>
      <h3>
        Layer {layerLabel(run, runs)}{" "}
        <span className="dim">
          {run.name}
          {more > 0 && `, ${more} more in the menu Sessions`}
        </span>
      </h3>
      <ul>
        {sessions.map(({ id, name, expert, strength, edits, prompt }) => {
          const row = experts.get(expert ?? -1);
          return (
            <li key={id}>
              <Link to={sessionUrl(id)} title={`Prompt: ${toOneLine(prompt, true)}`}>
                <b>{name}</b>
                <span>
                  {expert === null || strength === null
                    ? formatPlural(edits, "edit")
                    : `Expert ${expert}, ${describeEdit({ mode: "add", strength })}. `}
                  {row !== undefined && <ExpertLabel label={row.label} automatic={row.automatic} />}
                </span>
              </Link>
            </li>
          );
        })}
      </ul>
    </>
  );
}

export function SavedPrompts({ run }: { readonly run: RunSummary }) {
  const groups = useSavedSessions(run) ?? [];
  if (groups.length === 0) return null;
  return (
    <section className="saved-prompts" aria-labelledby="saved-sessions">
      <h2 id="saved-sessions">Saved sessions</h2>
      {groups.map((group) => (
        <RunGroup key={group.run.name} {...group} />
      ))}
    </section>
  );
}
