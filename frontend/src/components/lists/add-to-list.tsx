/** Popover that adds one or more experts to lists, with a field that creates a new list. */

import "./lists.css";

import { useQuery } from "@tanstack/react-query";
import { type RefObject, type SubmitEvent, useRef, useState } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";
import { Link } from "react-router";

import { messageOf } from "@/api/http";
import { useCreateList, useSetMembership } from "@/api/mutations";
import { listsQuery } from "@/api/queries";
import type { ListRef } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { Button, TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { Failure, LoadingState } from "@/components/ui/states";
import { formatCount } from "@/lib/text/format";

interface AddToListProps {
  readonly run: string;
  /** Experts to add. */
  readonly experts: readonly number[];
  /** Lists that already contain all of them, if known. */
  readonly containing?: readonly ListRef[];
  readonly className?: string;
  readonly label?: string;
}

interface NewListProps extends Pick<AddToListProps, "run" | "experts"> {
  readonly onCreated: (list: number) => void;
}

function NewList({ run, experts, onCreated }: NewListProps) {
  const [name, setName] = useState("");
  const field = useRef<HTMLInputElement>(null);
  const creation = useCreateList(run);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (name.trim() === "") return;
    // The button is disabled from here on. Without the focus, the popover would not close on Escape.
    field.current?.focus();
    const onSuccess = ({ id }: { readonly id: number }) => {
      setName("");
      onCreated(id);
    };
    creation.mutate({ name: name.trim(), experts }, { onSuccess });
  };
  return (
    <form className="row wrap new-list" onSubmit={submit}>
      <span className="field grow">
        <input
          ref={field}
          aria-label="New list name"
          placeholder="New list"
          // eslint-disable-next-line jsx-a11y/no-autofocus -- the popover is opened in order to type or to choose
          autoFocus
          maxLength={120}
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
      </span>
      <Button type="submit" size="small" disabled={name.trim() === "" || creation.isPending}>
        Create
      </Button>
      <Failure error={creation.error} />
    </form>
  );
}

interface ListChoicesProps extends AddToListProps {
  /** Closes the popover when a list is opened; it would otherwise stay open on the next page. */
  readonly onClose: () => void;
}

function ListChoices({ run, experts, containing = [], onClose }: ListChoicesProps) {
  const { data, error } = useQuery(listsQuery(run));
  const links = usePageLinks();
  const membership = useSetMembership(run);
  /** Lists that the experts were added to since the popover opened. */
  const [added, setAdded] = useState<ReadonlySet<number>>(new Set());
  const has = (list: number) => added.has(list) || containing.some((other) => other.id === list);
  return (
    <>
      {error !== null && <p className="bad">{messageOf(error)}</p>}
      {error === null && data === undefined && <LoadingState label="Loading lists" rows={2} />}
      {data?.lists.length === 0 && <p className="dim">No lists yet. Name one to create it with this selection.</p>}
      {data !== undefined && (
        <ul className="list-choices">
          {data.lists.map(({ id, name, experts: size }) => (
            <li key={id} className="row">
              <label className="row">
                <input
                  type="checkbox"
                  checked={has(id)}
                  onChange={({ target: { checked } }) => {
                    setAdded(new Set(checked ? [...added, id] : [...added].filter((other) => other !== id)));
                    membership.mutate({ list: id, experts, isMember: checked });
                  }}
                />
                {name}
              </label>
              <Link className="dim" to={links.list(id)} aria-label={`Open list ${name}`} onClick={onClose}>
                {formatCount(size)}, open
              </Link>
            </li>
          ))}
        </ul>
      )}
      <Failure error={membership.error} />
      <NewList run={run} experts={experts} onCreated={(list) => setAdded(new Set([...added, list]))} />
    </>
  );
}

interface ListPopoverProps extends AddToListProps {
  /** Without a trigger around it: what it is beside, and whether it is open. */
  readonly triggerRef?: RefObject<HTMLElement | null>;
  readonly isOpen?: boolean;
  readonly onOpenChange?: (isOpen: boolean) => void;
}

export function ListPopover({ triggerRef, isOpen, onOpenChange, ...props }: ListPopoverProps) {
  const { experts } = props;
  const subject = experts.length === 1 ? `expert ${experts[0] ?? ""}` : `${formatCount(experts.length)} experts`;
  const opened = triggerRef && { triggerRef, isOpen: isOpen ?? false, ...(onOpenChange && { onOpenChange }) };
  return (
    <Popover className="popover" placement="bottom end" {...opened}>
      <Dialog className="lists-dialog" aria-label={`Lists for ${subject}`}>
        {({ close }) => <ListChoices {...props} onClose={close} />}
      </Dialog>
    </Popover>
  );
}

export function AddToList(props: AddToListProps) {
  const { experts, className = "btn", label = "Add to list" } = props;
  return (
    <DialogTrigger>
      <TriggerButton className={className} isDisabled={experts.length === 0}>
        <Icon name="list" />
        {label}
      </TriggerButton>
      <ListPopover {...props} />
    </DialogTrigger>
  );
}
