/** Saved sessions as a gallery, the form that saves one under a short URL, and the one that is open. */

import { useQueries, useQuery } from "@tanstack/react-query";
import { Fragment, type ReactNode, type SyntheticEvent, useEffect, useRef, useState } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";
import { Link } from "react-router";

import { messageOf } from "@/api/http";
import { useDeleteSession, useSaveSession } from "@/api/mutations";
import { sessionQuery, sessionsQuery } from "@/api/queries";
import type { ExpertRow, RunSummary, SessionSummary, SteeringRequest } from "@/api/types";
import { ExpertLabel, shownAutomatic } from "@/components/experts/expert-link";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks, sessionUrl, usePageLinks } from "@/components/runs/page-links";
import { layerLabel } from "@/components/runs/run-labels";
import { Button, GhostButton, TriggerButton } from "@/components/ui/button";
import { CopyButton } from "@/components/ui/copy-button";
import { Icon } from "@/components/ui/icon";
import { Failure } from "@/components/ui/states";
import { useExpertRows } from "@/hooks/use-experts";
import { describeEdit, type Edit, editKey, formatEdits, hasStrength } from "@/lib/edits/edits";
import { divergingClass, SCALE_LIMIT } from "@/lib/scales/colour-scale";
import { formatPlural } from "@/lib/text/format";
import { splitLeadingSpace, toOneLine } from "@/lib/text/token-text";

import type { StateProps } from "./index";
import { requestEdits } from "./steering-params";

import "./sessions.css";

const MAX_RUNS = 8;
/** Lines of a card; further edits are counted. */
const SHOWN_EDITS = 2;

const fullUrl = (id: string) => window.location.origin + sessionUrl(id);

/** Deletes at the second press. */
function DeleteButton({ run, id, name }: { readonly run: string; readonly id: string; readonly name: string }) {
  const [isAsked, setAsked] = useState(false);
  const remove = useDeleteSession(run);
  return (
    <GhostButton
      icon="bin"
      aria-label={isAsked ? `Delete ${name}: press again` : `Delete ${name}`}
      disabled={remove.isPending}
      onClick={() => (isAsked ? remove.mutate(id) : setAsked(true))}
      onBlur={() => setAsked(false)}
    >
      {isAsked && "Delete"}
    </GhostButton>
  );
}

interface CardProps {
  readonly session: SessionSummary;
  readonly experts: ReadonlyMap<number, ExpertRow>;
  /** Whether it opens the sweep of its edit. */
  readonly isSwept: boolean;
}

/** Nats by which an edit clearly raised a token. */
const RAISED = 1;

/** The steered text, with the tokens that the edits raised. */
function Beginning({ text, tokens }: Pick<SessionSummary, "text" | "tokens">) {
  if (tokens.length === 0) return toOneLine(text ?? "", true);
  return tokens.map((token, i) => {
    const { leadingSpace, body } = splitLeadingSpace(toOneLine(token.text, true));
    const isRaised = token.delta_log_probability >= RAISED && body.trim() !== "";
    const shade = divergingClass(token.delta_log_probability, SCALE_LIMIT);
    return (
      <Fragment key={i}>
        {leadingSpace}
        {isRaised ? <span className={`tok ${shade}`}>{body}</span> : body}
      </Fragment>
    );
  });
}

/** Rows of the run's experts that the edits of sessions change. */
function useEditedExperts(run: RunSummary, sessions: readonly Pick<SessionSummary, "edits">[]) {
  const own = sessions.flatMap(({ edits }) => edits.filter((edit) => (edit.run ?? run.name) === run.name));
  const numbers = [...new Set(own.map(({ expert }) => expert))];
  return useExpertRows(run.indexed_tokens === null ? null : run.name, numbers);
}

interface EditLinesProps extends Pick<CardProps, "experts"> {
  readonly edits: readonly Edit[];
  readonly run: string;
}

/** Edits of a session with the labels of their experts. */
function EditLines({ edits, run, experts }: EditLinesProps) {
  return edits.map((edit, i) => {
    const row = (edit.run ?? run) === run ? experts.get(edit.expert) : undefined;
    return (
      <span key={i} className="cut">
        <span className="sr">Expert </span>
        <span className="mono">{editKey(edit)}</span> <b className="num">{describeEdit(edit)}</b>{" "}
        {row !== undefined && <ExpertLabel label={row.label} automatic={row.automatic} />}
      </span>
    );
  });
}

/** A session: its name, what it says, what it edits, and what that costs. */
function Card({ session: { id, name, run, prompt, text, price, ...session }, experts, isSwept }: CardProps) {
  const edits = requestEdits(session.edits);
  const to = isSwept ? pageLinks(run).page("strength", { prompt, edits: formatEdits(edits) }) : sessionUrl(id);
  const shown = edits.length > SHOWN_EDITS ? edits.slice(0, SHOWN_EDITS - 1) : edits;
  const date = session.saved_at.slice(0, 10);
  return (
    <li>
      <Link className="stack" to={to} title={`${session.is_chat ? "Chat" : "Text"}, saved on ${date}`}>
        <b className="cut">{name}</b>
        <q className="clamp">
          <span className="dim">{toOneLine(prompt, true)}</span> <Beginning text={text} tokens={session.tokens} /> …
        </q>
        <EditLines edits={shown} {...{ run, experts }} />
        {shown.length < edits.length && <span>{formatPlural(edits.length - shown.length, "more edit")}</span>}
        {price !== null && <span className="dim">Side effects: {price.figures}</span>}
      </Link>
      <CopyButton
        size="small"
        variant="ghost"
        aria-label={`Copy link to ${name}`}
        icon="link"
        text={() => fullUrl(id)}
      />
      <DeleteButton run={run} id={id} name={name} />
    </li>
  );
}

interface RunSessions {
  readonly run: RunSummary;
  readonly sessions: readonly SessionSummary[];
}

function RunGroup({ run, sessions, isSwept }: RunSessions & Pick<CardProps, "isSwept">) {
  const { runs } = useCurrentRun();
  const experts = useEditedExperts(run, sessions);
  return (
    <>
      <h3>
        Layer {layerLabel(run, runs)} <span className="dim">{run.name}</span>
      </h3>
      <ul>
        {sessions.map((session) => (
          <Card key={session.id} {...{ session, experts, isSwept }} />
        ))}
      </ul>
    </>
  );
}

interface GalleryProps {
  readonly run: RunSummary;
  /** Most sessions per run. */
  readonly most?: number;
  /** Chats, or texts whose edit can be swept: these open their sweep. */
  readonly only?: keyof typeof TITLES;
  /** Below the sessions, once they are there. */
  readonly children?: ReactNode;
}

const TITLES = { all: "Saved sessions", chats: "Saved chats", sweeps: "Sweep the edit of a saved session" };

const isListed = ({ is_chat: isChat, edits }: SessionSummary, only: keyof typeof TITLES) =>
  only === "chats"
    ? isChat
    : only === "all" || (!isChat && edits.length === 1 && requestEdits(edits).every(hasStrength));

/** Whether a session has all words in its name, prompt, text or edits. */
function hasWords({ name, prompt, text, edits }: SessionSummary, typed: string): boolean {
  const own = [name, prompt, text, ...requestEdits(edits).map(editKey)].join(" ").toLowerCase();
  const words = typed.toLowerCase().split(/\s+/u);
  return words.every((word) => own.includes(word));
}

/** Saved sessions of the run, then those of other runs of its language model, by layer: what each says and edits. */
export function Gallery({ run, most = Infinity, only = "all", children }: GalleryProps) {
  const links = usePageLinks();
  const { runs } = useCurrentRun();
  const [typed, setTyped] = useState("");
  const others = runs
    .filter(({ name, language_model: model }) => name !== run.name && model === run.language_model)
    .toSorted((a, b) => a.layer - b.layer);
  const listed = [run, ...others].slice(0, MAX_RUNS);
  const results = useQueries({ queries: listed.map(({ name }) => sessionsQuery(name)) });
  if (results.some(({ isPending }) => isPending)) return null;
  const all = listed.map((each, i): RunSessions => {
    const sessions = results[i]?.data?.sessions.filter((session) => isListed(session, only)) ?? [];
    return { run: each, sessions: sessions.slice(0, most) };
  });
  const found = all.map((group) => ({ ...group, sessions: group.sessions.filter((one) => hasWords(one, typed)) }));
  const groups = found.filter(({ sessions }) => sessions.length > 0);
  const isEmpty = all.every(({ sessions }) => sessions.length === 0);
  return (
    <section className="saved-prompts" aria-labelledby="saved-sessions">
      <div className="row pane-h wrap">
        <h2 id="saved-sessions">{TITLES[only]}</h2>
        {groups.length > 0 && <span className="note">Green: made likelier by the edit</span>}
        {most === Infinity && !isEmpty && (
          <div className="row search">
            <Icon name="search" />
            <input
              type="search"
              aria-label="Filter sessions"
              placeholder="Name, text or expert"
              value={typed}
              onChange={(event) => setTyped(event.target.value)}
            />
          </div>
        )}
      </div>
      {groups.length === 0 && (
        <p className="dim">
          {isEmpty
            ? "None yet. A session keeps both texts, and prompt, edits, sampling settings and seed to write them again."
            : `No session has “${typed}” in its name, text or edits.`}
        </p>
      )}
      {groups.map((group) => (
        <RunGroup key={group.run.name} {...group} isSwept={only === "sweeps"} />
      ))}
      {most < Infinity && groups.length > 0 && (
        <Link className="link" to={links.page("sessions")}>
          All sessions
        </Link>
      )}
      {children}
    </section>
  );
}

/** The beginning of a text, up to a whole word. */
const beginning = (text: string, most: number) =>
  text.length <= most ? text : `${text.slice(0, most).replace(/[\s,;:]*\S*$/u, "")} …`;

/** What tells one session from others: the first edit with its strength, and the prompt. */
function useDefaultName(run: string, { turns, prompt = "", edits = [] }: SteeringRequest): string {
  const [first] = requestEdits(edits);
  const rows = useExpertRows(first?.run ?? run, first === undefined ? [] : [first.expert]);
  const text = beginning(toOneLine(turns?.at(-1)?.text ?? prompt, true), 40);
  if (first === undefined) return text;
  const row = rows.get(first.expert);
  const label = row?.label ?? shownAutomatic(row?.automatic)?.label ?? `Expert ${first.expert}`;
  const others = edits.length > 1 ? ` and ${edits.length - 1} more` : "";
  return `${beginning(label, 36)} ${describeEdit(first)}${others}: ${text}`;
}

function SaveForm({ state, onSaved }: StateProps & { readonly onSaved: () => void }) {
  const { run, request, texts, setParams, costs } = state;
  const usual = useDefaultName(run.name, request);
  const [typed, setName] = useState<string | null>(null);
  const name = typed ?? usual;
  const inputRef = useRef<HTMLInputElement>(null);
  // The usual name may arrive after the field has the focus.
  useEffect(() => {
    if (typed === null) inputRef.current?.select();
  }, [typed, usual]);
  const save = useSaveSession(run.name);
  const [price = null] = costs.prices;
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    const body = { name, steering: request, result: texts && { ...texts, price } };
    save.mutate(body, {
      onSuccess: ({ id }) => {
        setParams({ session: id });
        onSaved();
      },
    });
  };
  return (
    <form className="row wrap session-save" onSubmit={submit}>
      <span className="field grow">
        <input
          className="grow"
          ref={inputRef}
          aria-label="Session name"
          // eslint-disable-next-line jsx-a11y/no-autofocus -- the popover is opened in order to type the name
          autoFocus
          maxLength={200}
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
      </span>
      <Button type="submit" variant="primary" disabled={name.trim() === "" || texts === null || save.isPending}>
        Save
      </Button>
      <Failure error={save.error} />
    </form>
  );
}

/** The button that saves the texts and what determines them, once they are complete. */
export function SaveSession({ state }: StateProps) {
  const { texts, isChanged } = state;
  return (
    <DialogTrigger>
      <span title={texts === null ? "Once all texts are generated" : undefined}>
        <TriggerButton className={isChanged ? "btn sm" : "btn"} isDisabled={texts === null}>
          {isChanged ? "Save as a new session" : "Save session"}
        </TriggerButton>
      </span>
      <Popover className="popover" placement="bottom end">
        <Dialog aria-label="Save session">{({ close }) => <SaveForm state={state} onSaved={close} />}</Dialog>
      </Popover>
    </DialogTrigger>
  );
}

/** The open session; what has changed since it was saved, and warnings if its texts can no longer be reproduced. */
export function OpenedSession({ state }: StateProps) {
  const { run, params, isChanged } = state;
  const isStored = state.generator.generation.status === "stored";
  const { data, error } = useQuery(sessionQuery(params.session));
  const experts = useEditedExperts(run, data === undefined ? [] : [data]);
  if (params.session === "") return null;
  return (
    <section className="row opened-session" role="status" aria-label="Session">
      <div className="row wrap grow">
        {error !== null && <span className="bad">{messageOf(error)}</span>}
        {data !== undefined && (
          <>
            <h2>{data.name}</h2>
            <EditLines edits={requestEdits(data.edits)} run={run.name} experts={experts} />
            <span className="dim">
              Session
              {!isChanged && (data.result === null ? " without texts" : isStored ? ", texts as saved" : ", as saved")}
            </span>
            {isChanged && (
              <>
                <span className="chip warn">changed</span>
                <Button size="small" onClick={() => state.reopen(data)}>
                  Back to the saved one
                </Button>
                <SaveSession state={state} />
              </>
            )}
            {data.changed.map((sentence) => (
              <span key={sentence} className="bad">
                {sentence}
              </span>
            ))}
          </>
        )}
      </div>
      <GhostButton
        icon="close"
        aria-label="Close session"
        title="Close the session and empty the tray"
        onClick={state.closeSession}
      />
    </section>
  );
}
