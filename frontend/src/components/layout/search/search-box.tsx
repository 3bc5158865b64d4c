/** Search over labels, top tokens and top examples of the run. Choosing a hit opens the expert. */

import { type KeyboardEvent, useRef, useState } from "react";
import { ComboBox, Input, ListBox, ListBoxItem, Popover } from "react-aria-components";
import { useNavigate } from "react-router";

import { messageOf } from "@/api/http/errors";
import type { SearchHit } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { usePageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { Icon } from "@/components/ui/icon";
import { useShortcut } from "@/hooks/use-shortcut";
import { keyCap } from "@/lib/browser/shortcuts";

import { firstHitPerExpert } from "./first-hits";
import { MatchedText } from "./matched-text";
import { useSearchHits } from "./search-results";

interface HitRowProps {
  readonly hit: SearchHit;
  readonly query: string;
}

function MatchReason({ hit }: { readonly hit: SearchHit }) {
  const peak = hit.example?.tokens[hit.example.position];
  if (peak === undefined) return <span className="dim">{hit.matched === "token" ? "top token" : hit.matched}</span>;
  return (
    <span className="dim">
      example, fires on <TokenChip text={peak} />
    </span>
  );
}

function HitRow({ hit, query }: HitRowProps) {
  return (
    <ListBoxItem id={String(hit.expert)} textValue={hit.label ?? `Expert ${hit.expert}`} className="hit">
      <span className="mono id">{hit.expert}</span>
      <span className="lab">
        <ExpertLabel label={hit.label} automatic={hit.automatic} />
      </span>
      <MatchReason hit={hit} />
      {hit.example !== null && <MatchedText context={hit.example} query={query} />}
    </ListBoxItem>
  );
}

interface SearchBoxProps {
  readonly onChosen?: () => void;
  /** In a dialog it takes the focus on opening, and the shortcut stays with the page's own box. */
  readonly inDialog?: boolean;
}

export function SearchBox({ onChosen, inDialog = false }: SearchBoxProps) {
  const [text, setText] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const navigate = useNavigate();
  const links = usePageLinks();
  const { hits, debounced, query } = useSearchHits(text);
  useShortcut("search", () => input.current?.focus(), !inDialog);
  const choose = (key: string | number | null) => {
    if (key === null) return;
    setText("");
    onChosen?.();
    void navigate(links.expert(Number(key)));
  };
  const isSearching = query.isPending || debounced !== text.trim();
  const emptyText = query.error ? messageOf(query.error) : isSearching ? "Searching…" : "No matches";
  const onKeyDown = (event: KeyboardEvent<HTMLInputElement>) => {
    // If a hit is selected with the arrow keys, Enter opens it instead of the Search page.
    if (event.key !== "Enter" || text.trim() === "" || event.currentTarget.hasAttribute("aria-activedescendant"))
      return;
    setText("");
    onChosen?.();
    void navigate(links.page("search", { text }));
  };
  return (
    <ComboBox
      className="search-box"
      aria-label="Search labels, tokens and examples"
      inputValue={text}
      onInputChange={setText}
      items={firstHitPerExpert(hits)}
      value={null}
      onChange={choose}
      allowsEmptyCollection
      menuTrigger="input"
    >
      <div className="search">
        <Icon name="search" />
        <Input
          ref={input}
          placeholder="Search labels, tokens and examples"
          // eslint-disable-next-line jsx-a11y/no-autofocus -- the dialog is opened in order to type
          autoFocus={inDialog}
          onKeyDown={onKeyDown}
        />
        {!inDialog && <kbd aria-hidden="true">{keyCap("search")}</kbd>}
      </div>
      <Popover className="popover hits" placement="bottom end" maxHeight={560} hidden={debounced === ""}>
        <ListBox renderEmptyState={() => <p className="dim">{emptyText}</p>}>
          {(hit: SearchHit) => <HitRow hit={hit} query={debounced} />}
        </ListBox>
        <p className="dim hit-hint">Enter: see all matches</p>
      </Popover>
    </ComboBox>
  );
}
