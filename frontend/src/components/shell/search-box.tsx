/** Search over labels and contexts of the run, with the hits underneath; choosing one opens the expert. */

import { useRef, useState } from "react";
import { ComboBox, Input, ListBox, ListBoxItem, Popover } from "react-aria-components";
import { useNavigate } from "react-router";

import { messageOf } from "@/api/errors";
import type { Context, SearchHit } from "@/api/types";
import { sequentialClass } from "@/lib/colour-scale";
import { snippet } from "@/lib/kwic";
import { keyCap } from "@/lib/shortcuts";

import { Icon } from "../icon";
import { usePageLinks } from "../links";
import { useShortcut } from "../shortcuts";
import { TokenText } from "../tokens/token-text";
import { useSearchHits } from "./search-results";

function HitContext({ context }: { readonly context: Context }) {
  return (
    <span className="hit-context mono">
      <TokenText
        pieces={snippet(context, 7)}
        peak={context.position}
        isLive={() => false}
        shade={(piece) => sequentialClass(piece.value ?? 0, context.coefficient)}
      />
    </span>
  );
}

function HitRow({ hit }: { readonly hit: SearchHit }) {
  return (
    <ListBoxItem id={String(hit.expert)} textValue={hit.label ?? `Expert ${hit.expert}`} className="hit">
      <span className="mono id">{hit.expert}</span>
      <span className="lab">{hit.label ?? <span className="dim">no label yet</span>}</span>
      <span className="dim">{{ label: "label", token: "top token", context: "context" }[hit.matched]}</span>
      {hit.context !== null && <HitContext context={hit.context} />}
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
        <Input ref={input} placeholder="Search labels and contexts" autoFocus={inDialog} />
        {!inDialog && <kbd aria-hidden="true">{keyCap("search")}</kbd>}
      </div>
      <Popover className="popover hits" placement="bottom end" hidden={settled === ""}>
        <ListBox
          renderEmptyState={() => (
            <p className="dim">{query.error ? messageOf(query.error) : settled === "" ? "" : "Nothing found"}</p>
          )}
        >
          {(hit: SearchHit) => <HitRow hit={hit} />}
        </ListBox>
      </Popover>
    </ComboBox>
  );
}
