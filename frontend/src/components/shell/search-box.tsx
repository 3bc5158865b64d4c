/** Search over labels and contexts of the run, with the hits underneath; choosing one opens the expert. */

import { type KeyboardEvent, useRef, useState } from "react";
import { ComboBox, Input, ListBox, ListBoxItem, Popover } from "react-aria-components";
import { useNavigate } from "react-router";

import { messageOf } from "@/api/errors";
import type { Context, SearchHit } from "@/api/types";
import { excerpt } from "@/lib/excerpt";
import { keyCap } from "@/lib/shortcuts";

import { ExpertLabel } from "../expert-ref";
import { Icon } from "../icon";
import { usePageLinks } from "../links";
import { useShortcut } from "../shortcuts";
import { TokenChip } from "../tokens/token-chip";
import { useSearchHits } from "./search-results";

interface HitRowProps {
  readonly hit: SearchHit;
  readonly searched: string;
}

function HitContext({ context, searched }: { readonly context: Context; readonly searched: string }) {
  const { before, match, after } = excerpt(context.tokens.join(""), searched);
  return (
    <span className="hit-context mono">
      {before}
      <mark>{match}</mark>
      {after}
    </span>
  );
}

function Matched({ hit }: { readonly hit: SearchHit }) {
  const peak = hit.context?.tokens[hit.context.position];
  if (peak === undefined) return <span className="dim">{hit.matched === "token" ? "top token" : hit.matched}</span>;
  return (
    <span className="dim">
      context, fires on <TokenChip text={peak} />
    </span>
  );
}

function HitRow({ hit, searched }: HitRowProps) {
  return (
    <ListBoxItem id={String(hit.expert)} textValue={hit.label ?? `Expert ${hit.expert}`} className="hit">
      <span className="mono id">{hit.expert}</span>
      <span className="lab">
        <ExpertLabel label={hit.label} automatic={hit.automatic} />
      </span>
      <Matched hit={hit} />
      {hit.context !== null && <HitContext context={hit.context} searched={searched} />}
    </ListBoxItem>
  );
}

/** One row an expert: the list needs keys of its own. */
function distinct(hits: readonly SearchHit[]): readonly SearchHit[] {
  return hits.filter((hit, i) => hits.findIndex((other) => other.expert === hit.expert) === i);
}

interface SearchBoxProps {
  readonly onChosen?: () => void;
  /** In a dialog it takes the focus at once and leaves the key to the bar. */
  readonly inDialog?: boolean;
}

export function SearchBox({ onChosen, inDialog = false }: SearchBoxProps) {
  const [text, setText] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const navigate = useNavigate();
  const links = usePageLinks();
  const { hits, settled, query } = useSearchHits(text);
  useShortcut("search", () => input.current?.focus(), !inDialog);
  const choose = (key: string | number | null) => {
    if (key === null) return;
    setText("");
    onChosen?.();
    void navigate(links.expert(Number(key)));
  };
  const onKeyDown = (event: KeyboardEvent<HTMLInputElement>) => {
    // With a hit chosen by the arrows, Enter opens that.
    if (event.key !== "Enter" || text.trim() === "" || event.currentTarget.hasAttribute("aria-activedescendant"))
      return;
    setText("");
    onChosen?.();
    void navigate(links.page("search", { text }));
  };
  return (
    <ComboBox
      className="search-box"
      aria-label="Search labels and contexts"
      inputValue={text}
      onInputChange={setText}
      items={distinct(hits)}
      value={null}
      onChange={choose}
      allowsEmptyCollection
      menuTrigger="input"
    >
      <div className="search">
        <Icon name="search" />
        {/* eslint-disable-next-line jsx-a11y/no-autofocus -- the dialog was opened in order to type here */}
        <Input ref={input} placeholder="Search labels and contexts" autoFocus={inDialog} onKeyDown={onKeyDown} />
        {!inDialog && <kbd aria-hidden="true">{keyCap("search")}</kbd>}
      </div>
      <Popover className="popover hits" placement="bottom end" maxHeight={560} hidden={settled === ""}>
        <ListBox
          renderEmptyState={() => (
            <p className="dim">{query.error ? messageOf(query.error) : settled === "" ? "" : "Nothing found"}</p>
          )}
        >
          {(hit: SearchHit) => <HitRow hit={hit} searched={settled} />}
        </ListBox>
        <p className="dim hit-hint">Enter: which experts fire on this text</p>
      </Popover>
    </ComboBox>
  );
}
