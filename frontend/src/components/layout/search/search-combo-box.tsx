/** The search box with its list of hits. Loaded when the box takes the focus. */

import { type KeyboardEventHandler, type ReactNode, type RefObject, useMemo, useRef } from "react";
import { ComboBox, Input, ListBox, ListBoxItem, Popover } from "react-aria-components";

import { messageOf } from "@/api/http";

import { HitRow } from "./matched-text";
import { firstHitPerExpert, noMatchText, type PageRow, SEARCH_LABEL, useSearchHits } from "./search-results";

interface PageRowProps {
  readonly id: PageRow;
  readonly query: string;
  /** Whether Enter opens it, because no row is selected. */
  readonly isDefault: boolean;
}

function PageLinkRow({ id, query, isDefault }: PageRowProps) {
  return (
    <ListBoxItem id={id} textValue={query} className="hit-hint">
      {id === "words"
        ? "All matches on the Search page"
        : `Run “${query}” through the model to find experts that fire on it`}
      {isDefault && <kbd aria-hidden="true">Enter</kbd>}
    </ListBoxItem>
  );
}

interface SearchComboBoxProps {
  readonly text: string;
  readonly onText: (text: string) => void;
  /** Receives the number of an expert, or a `PageRow`. */
  readonly onChoose: (row: string) => void;
  readonly onKeyDown: KeyboardEventHandler<HTMLInputElement>;
  readonly input: RefObject<HTMLInputElement | null>;
  readonly hasFocus: boolean;
  /** Before and after the input. */
  readonly icon: ReactNode;
  readonly keyHint: ReactNode;
}

function useRows(text: string) {
  const { hits, debounced, query } = useSearchHits(text);
  const isSearching = query.isPending || debounced !== text.trim();
  const rows = useMemo(() => {
    const experts = firstHitPerExpert(hits).map((hit) => ({ id: String(hit.expert), hit, query: debounced }));
    const isFound = hits.length > 0 || query.isPlaceholderData;
    const page = { id: isFound ? "words" : "passage", hit: null, query: debounced } as const;
    return query.data === undefined || debounced === "" ? experts : [...experts, page];
  }, [hits, query.data, query.isPlaceholderData, debounced]);
  const note = query.error
    ? messageOf(query.error)
    : hits.length > 0
      ? null
      : isSearching
        ? "Searching…"
        : noMatchText(debounced);
  return { rows, note, isEmpty: debounced === "" };
}

export function SearchComboBox(props: SearchComboBoxProps) {
  const { text, onText, onChoose, onKeyDown, input, hasFocus, icon, keyHint } = props;
  const { rows, note, isEmpty } = useRows(text);
  // The whole box, with its icon and key, not only the input.
  const box = useRef<HTMLDivElement>(null);
  const [first] = rows;
  const isDefault = first?.hit?.matched !== "id";
  /** Enter runs the text if nothing else can be chosen. */
  const onEnter: typeof onKeyDown = (event) =>
    event.key === "Enter" && first?.id === "passage" && first.query === text.trim()
      ? onChoose(first.id)
      : onKeyDown(event);
  return (
    <ComboBox
      className="search-box"
      aria-label={SEARCH_LABEL}
      inputValue={text}
      onInputChange={onText}
      items={rows}
      value={null}
      onChange={(key) => key !== null && onChoose(String(key))}
      allowsEmptyCollection
      menuTrigger="input"
    >
      <div className="row search" ref={box}>
        {icon}
        {/* eslint-disable-next-line jsx-a11y/no-autofocus -- it replaces an input that has the focus */}
        <Input ref={input} placeholder={SEARCH_LABEL} autoFocus={hasFocus} onKeyDown={onEnter} />
        {keyHint}
      </div>
      <Popover className="popover hits" triggerRef={box} placement="bottom end" maxHeight={560} hidden={isEmpty}>
        {note !== null && <p className="dim">{note}</p>}
        <ListBox>
          {({ id, hit, query }: (typeof rows)[number]) =>
            hit === null ? (
              <PageLinkRow id={id} query={query} isDefault={isDefault} />
            ) : (
              <HitRow id={id} hit={hit} query={query} />
            )
          }
        </ListBox>
      </Popover>
    </ComboBox>
  );
}
