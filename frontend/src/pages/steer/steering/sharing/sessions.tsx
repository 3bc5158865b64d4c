/** Save a session under a name and short URL; the one that is open. */

import "./sessions.css";

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";

import { messageOf } from "@/api/http/errors";
import { useSaveSession } from "@/api/mutations";
import { sessionQuery } from "@/api/queries";
import type { SteeringRequest } from "@/api/types";
import { sessionUrl } from "@/components/runs/page-links";
import { Button } from "@/components/ui/button";
import { TriggerButton } from "@/components/ui/button";
import { CopyButton } from "@/components/ui/copy-button";
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

/** The button that saves what determines the texts. */
export function SaveSession(props: SaveProps) {
  return (
    <DialogTrigger>
      <TriggerButton className="btn">Save session</TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Dialog aria-label="Save session">
          {({ close }) => (
            <SaveForm
              {...props}
              onSaved={(id) => {
                props.onSaved(id);
                close();
              }}
            />
          )}
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
