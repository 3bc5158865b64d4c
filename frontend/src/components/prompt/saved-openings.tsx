/** Saved sessions to start with, for a page that has no prompt yet: the shipped ones, and one's own. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { sessionsQuery } from "@/api/queries";
import { onOneLine } from "@/lib/token-text";

import { sessionAddress } from "../links";

const SHOWN = 8;

export function SavedOpenings({ run }: { readonly run: string }) {
  const { data } = useQuery(sessionsQuery(run));
  const sessions = data?.sessions.slice(0, SHOWN) ?? [];
  if (sessions.length === 0) return null;
  return (
    <div className="openings saved">
      <span className="dim">Open a saved session:</span>
      <ul>
        {sessions.map((session) => (
          <li key={session.id}>
            <Link className="btn" to={sessionAddress(session.id)} title={onOneLine(session.prompt, true)}>
              {session.name}
            </Link>
          </li>
        ))}
      </ul>
    </div>
  );
}
