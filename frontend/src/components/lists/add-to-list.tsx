/** A button that opens the run's lists: each can be checked, and a new one made, for one expert or many. */

import "./lists.css";

import { useQuery } from "@tanstack/react-query";
import { type SubmitEvent, useState } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";
import { Link } from "react-router";

import { messageOf } from "@/api/errors";
import { listsQuery, useMakeList, useMembership } from "@/api/lists";
import type { ListRef } from "@/api/types";
import { formatCount } from "@/lib/format";

import { Button } from "../button";
import { Icon } from "../icon";
import { usePageLinks } from "../links";
import { LoadingState } from "../states";
import { TriggerButton } from "../trigger-button";

interface AddToListProps {
  readonly run: string;
  /** Which experts; asked for when a list is chosen. */
  readonly experts: readonly number[];
  /** Lists that hold all of them, where that is known. */
  readonly inside?: readonly ListRef[];
  readonly className?: string;
  readonly label?: string;
}

interface NewListProps extends Pick<AddToListProps, "run" | "experts"> {
  readonly onMade: (list: number) => void;
}

function NewList({ run, experts, onMade }: NewListProps) {
  const [name, setName] = useState("");
  const making = useMakeList(run);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (name.trim() === "") return;
    const onSuccess = ({ id }: { readonly id: number }) => {
      setName("");
      onMade(id);
    };
    making.mutate({ name: name.trim(), experts }, { onSuccess });
  };
  return (
    <form className="new-list" onSubmit={submit}>
      <span className="field">
        <input
          aria-label="Name of a new list"
          placeholder="New list"
          maxLength={120}
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
      </span>
      <Button type="submit" size="small" disabled={name.trim() === "" || making.isPending}>
        Make
      </Button>
      {making.error !== null && (
        <p className="bad" role="alert">
          {messageOf(making.error)}
        </p>
      )}
    </form>
  );
}

interface ListsProps extends AddToListProps {
  /** Called when a list is opened: what stands over the page would stay over the next one. */
  readonly onLeave: () => void;
  /** Lists that they were put into since this was opened. */
  readonly added: ReadonlySet<number>;
  readonly onAdded: (added: ReadonlySet<number>) => void;
}

function Lists({ run, experts, inside = [], onLeave, added, onAdded }: ListsProps) {
  const { data, error } = useQuery(listsQuery(run));
  const links = usePageLinks();
  const membership = useMembership(run);
  if (error !== null) return <p className="bad">{messageOf(error)}</p>;
  if (data === undefined) return <LoadingState label="Loading the lists" rows={2} />;
  const has = (list: number) => added.has(list) || inside.some((other) => other.id === list);
  return (
    <>
      {data.lists.length === 0 && <p className="dim">No list yet. Name one, and it begins with this.</p>}
      <ul className="list-choices">
        {data.lists.map((list) => (
          <li key={list.id}>
            <label>
              <input
                type="checkbox"
                checked={has(list.id)}
                onChange={(event) => {
                  const checked = event.target.checked;
                  onAdded(new Set(checked ? [...added, list.id] : [...added].filter((other) => other !== list.id)));
                  membership.mutate({ list: list.id, experts, inside: checked });
                }}
              />
              {list.name}
            </label>
            <Link className="dim" to={links.list(list.id)} aria-label={`Open the list ${list.name}`} onClick={onLeave}>
              {formatCount(list.experts)}, open
            </Link>
          </li>
        ))}
      </ul>
      {membership.error !== null && (
        <p className="bad" role="alert">
          {messageOf(membership.error)}
        </p>
      )}
    </>
  );
}

function ListChoices(props: Omit<ListsProps, "added" | "onAdded">) {
  const { run, experts } = props;
  const [added, setAdded] = useState<ReadonlySet<number>>(new Set());
  return (
    <>
      <Lists {...props} added={added} onAdded={setAdded} />
      <NewList run={run} experts={experts} onMade={(list) => setAdded(new Set([...added, list]))} />
    </>
  );
}

export function AddToList(props: AddToListProps) {
  const { experts, className = "btn", label = "Add to list" } = props;
  const what = experts.length === 1 ? `expert ${experts[0] ?? ""}` : `${formatCount(experts.length)} experts`;
  return (
    <DialogTrigger>
      <TriggerButton className={className} isDisabled={experts.length === 0}>
        <Icon name="list" />
        {label}
      </TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Dialog className="lists-dialog" aria-label={`Lists for ${what}`}>
          {({ close }) => <ListChoices {...props} onLeave={close} />}
        </Dialog>
      </Popover>
    </DialogTrigger>
  );
}
