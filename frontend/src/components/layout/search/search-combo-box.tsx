/** The search box with its list of hits. Loaded when the box takes the focus. */

import { type KeyboardEventHandler, type ReactNode, type RefObject, useMemo } from "react";
import { ComboBox, Input, ListBox, ListBoxItem, Popover } from "react-aria-components";

import { messageOf } from "@/api/http/errors";
import type { SearchHit } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { TokenChip } from "@/components/tokens/token-chip";

import { firstHitPerExpert } from "./first-hits";
import { MatchedText } from "./matched-text";
import { SEARCH_LABEL, useSearchHits } from "./search-results";

interface HitRowProps {
  /** The list keys its rows by it; by their position, a row could not become that of another expert. */
  readonly id: string;
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

function HitRow({ id, hit, query }: HitRowProps) {
  return (
    <ListBoxItem id={id} textValue={hit.label ?? `Expert ${hit.expert}`} className="hit">
      <span className="mono id">{hit.expert}</span>
      <span className="lab">
        <ExpertLabel label={hit.label} automatic={hit.automatic} />
      </span>
      <MatchReason hit={hit} />
      {hit.example !== null && <MatchedText context={hit.example} query={query} />}
    </ListBoxItem>
  );
}

interface SearchComboBoxProps {
  readonly text: string;
  readonly onText: (text: string) => void;
  readonly onChoose: (expert: number) => void;
  readonly onKeyDown: KeyboardEventHandler<HTMLInputElement>;
  readonly input: RefObject<HTMLInputElement | null>;
  readonly hasFocus: boolean;
  /** Before and after the input. */
  readonly icon: ReactNode;
  readonly keyHint: ReactNode;
}

export function SearchComboBox(props: SearchComboBoxProps) {
  const { text, onText, onChoose, onKeyDown, input, hasFocus, icon, keyHint } = props;
  const { hits, debounced, query } = useSearchHits(text);
  const rows = useMemo(() => firstHitPerExpert(hits).map((hit) => ({ id: String(hit.expert), hit })), [hits]);
  const isSearching = query.isPending || debounced !== text.trim();
  const emptyText = query.error ? messageOf(query.error) : isSearching ? "Searching…" : "No matches";
  return (
    <ComboBox
      className="search-box"
      aria-label={SEARCH_LABEL}
      inputValue={text}
      onInputChange={onText}
      items={rows}
      value={null}
      onChange={(key) => key !== null && onChoose(Number(key))}
      allowsEmptyCollection
      menuTrigger="input"
    >
      <div className="search">
        {icon}
        {/* eslint-disable-next-line jsx-a11y/no-autofocus -- it replaces an input that has the focus */}
        <Input ref={input} placeholder={SEARCH_LABEL} autoFocus={hasFocus} onKeyDown={onKeyDown} />
        {keyHint}
      </div>
      <Popover className="popover hits" placement="bottom end" maxHeight={560} hidden={debounced === ""}>
        <ListBox renderEmptyState={() => <p className="dim">{emptyText}</p>}>
          {({ id, hit }: (typeof rows)[number]) => <HitRow id={id} hit={hit} query={debounced} />}
        </ListBox>
        <p className="hit-hint">
          <kbd aria-hidden="true">Enter</kbd> opens the search page with all matches
        </p>
      </Popover>
    </ComboBox>
  );
}
