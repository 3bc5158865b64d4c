/** Saved sessions to start from, shown while a page has no prompt. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { sessionsQuery } from "@/api/queries";
import { sessionUrl } from "@/components/runs/page-links";
import { toOneLine } from "@/lib/text/token-text";

const MAX_SESSIONS = 12;

export function SavedPrompts({ run }: { readonly run: string }) {
  const { data } = useQuery(sessionsQuery(run));
  const sessions = data?.sessions.slice(0, MAX_SESSIONS) ?? [];
  if (sessions.length === 0) return null;
  return (
    <div className="example-prompts saved">
      <span className="dim">Open a saved session:</span>
      <ul>
        {sessions.map((session) => (
          <li key={session.id}>
            <Link className="btn" to={sessionUrl(session.id)} title={toOneLine(session.prompt, true)}>
              {session.name}
            </Link>
          </li>
        ))}
      </ul>
    </div>
  );
}
