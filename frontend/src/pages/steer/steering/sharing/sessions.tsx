/** Saved sessions: save the current one under a name and short URL; open, share or delete others. */

import "./sessions.css";

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";
import { Link } from "react-router";

import { messageOf } from "@/api/http/errors";
import { useDeleteSession, useSaveSession } from "@/api/mutations";
import { sessionQuery, sessionsQuery } from "@/api/queries";
import type { SessionSummary, SteeringRequest } from "@/api/types";
import { sessionUrl } from "@/components/runs/page-links";
import { Button } from "@/components/ui/button";
import { TriggerButton } from "@/components/ui/button";
import { CopyButton } from "@/components/ui/copy-button";
import { describeEdit } from "@/lib/edits/edits";
import { toOneLine } from "@/lib/text/token-text";

const NAME_LENGTH = 60;

function defaultName(request: SteeringRequest): string {
  const prompt = request.turns?.at(-1)?.text ?? request.prompt ?? "";
  return toOneLine(prompt, true).slice(0, NAME_LENGTH);
}

interface SaveProps {
  readonly run: string;
  readonly request: SteeringRequest;
  readonly onSaved: (id: string) => void;
}

function SaveForm({ run, request, onSaved }: SaveProps) {
  const [name, setName] = useState(defaultName(request));
  const save = useSaveSession(run);
  const submit = () => save.mutate({ name, steering: request }, { onSuccess: (session) => onSaved(session.id) });
  return (
    <form
      className="session-save"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <span className="field">
        <input
          aria-label="Session name"
          maxLength={200}
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
      </span>
      <Button type="submit" variant="primary" disabled={name.trim() === "" || save.isPending}>
        Save
      </Button>
      {save.error !== null && <p className="bad">{messageOf(save.error)}</p>}
    </form>
  );
}

const DATE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium" });

/** `Expert 609, + 2.0` for one amplified expert, else the number of edits. */
function describeEdits({ edits, expert, strength }: SessionSummary): string {
  if (expert !== null && strength !== null) return `Expert ${expert}, ${describeEdit({ mode: "add", strength })}`;
  return `${edits} ${edits === 1 ? "edit" : "edits"}`;
}

function Row({ run, session, isOpen }: { run: string; session: SessionSummary; isOpen: boolean }) {
  const remove = useDeleteSession(run);
  const url = sessionUrl(session.id);
  return (
    <li className={isOpen ? "open" : undefined}>
      <Link to={url} aria-current={isOpen || undefined}>
        <b>{session.name}</b>
        <span className="dim">
          {describeEdits(session)}, saved {DATE.format(new Date(session.saved_at))}
        </span>
      </Link>
      <CopyButton
        size="small"
        variant="ghost"
        aria-label={`Copy link to ${session.name}`}
        icon="link"
        text={() => window.location.origin + url}
      />
      <Button
        size="small"
        variant="ghost"
        icon="close"
        aria-label={`Delete ${session.name}`}
        disabled={remove.isPending}
        onClick={() => remove.mutate(session.id)}
      />
    </li>
  );
}

interface SessionsProps {
  readonly run: string;
  readonly request: SteeringRequest;
  /** Whether there is a generation to save. */
  readonly canSave: boolean;
  /** Id of the open session, or "". */
  readonly open: string;
  readonly onSaved: (id: string) => void;
}

function Menu({ run, request, canSave, open, onSaved }: SessionsProps) {
  const { data, error } = useQuery(sessionsQuery(run));
  return (
    <div className="sessions">
      {canSave && <SaveForm run={run} request={request} onSaved={onSaved} />}
      {error !== null && <p className="bad">{messageOf(error)}</p>}
      {data?.sessions.length === 0 && (
        <p className="dim">
          No saved sessions. A session stores prompt, edits, sampling settings and seed, so that it reproduces the same
          texts.
        </p>
      )}
      <ul>
        {data?.sessions.map((session) => (
          <Row key={session.id} run={run} session={session} isOpen={session.id === open} />
        ))}
      </ul>
    </div>
  );
}

export function Sessions(props: SessionsProps) {
  return (
    <DialogTrigger>
      <TriggerButton className="btn">Sessions</TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Dialog aria-label="Saved sessions">
          <Menu {...props} />
        </Dialog>
      </Popover>
    </DialogTrigger>
  );
}

/** The open session, with warnings if its texts can no longer be reproduced. */
export function OpenedSession({ id, onClose }: { readonly id: string; readonly onClose: () => void }) {
  const { data, error } = useQuery(sessionQuery(id));
  if (id === "") return null;
  return (
    <p className="opened-session" role="status">
      {error !== null && <span className="bad">{messageOf(error)}</span>}
      {data !== undefined && (
        <>
          Session <b>{data.name}</b>
          {data.changed.map((sentence) => (
            <span key={sentence} className="bad">
              {sentence}
            </span>
          ))}
          <CopyButton
            size="small"
            variant="ghost"
            icon="link"
            text={() => window.location.origin + sessionUrl(data.id)}
          >
            Copy link
          </CopyButton>
        </>
      )}
      <Button size="small" variant="ghost" icon="close" aria-label="Close session" onClick={onClose} />
    </p>
  );
}
