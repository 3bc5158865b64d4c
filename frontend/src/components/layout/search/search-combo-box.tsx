/** The search box with its list of hits. Loaded when the box takes the focus. */

import { type KeyboardEventHandler, type ReactNode, type RefObject, useMemo, useRef } from "react";
import { ComboBox, Input, ListBox, ListBoxItem, Popover } from "react-aria-components";

import { messageOf } from "@/api/http";

import { HitRow } from "./matched-text";
import { groupByLabel, noMatchText, type PageRow, SEARCH_LABEL, useLayerHits } from "./search-results";

interface PageRowProps {
  readonly id: PageRow;
  readonly query: string;
  readonly layers: readonly number[];
  /** Whether Enter opens it, because no row is selected. */
  readonly isDefault: boolean;
}

function PageLinkRow({ id, query, layers, isDefault }: PageRowProps) {
  return (
    <ListBoxItem id={id} textValue={query} className="hit-hint">
      {id === "words"
        ? `All matches in ${layers.length === 1 ? "layer" : "layers"} ${layers.toSorted((a, b) => a - b).join(", ")}, and those of related words`
        : `Run “${query}” through the model to find experts that fire on it`}
      {isDefault && <kbd aria-hidden="true">Enter</kbd>}
    </ListBoxItem>
  );
}

interface SearchComboBoxProps {
  readonly text: string;
  readonly onText: (text: string) => void;
  /** Receives the run and the number of an expert, as `run/46`, or a `PageRow`. */
  readonly onChoose: (row: string) => void;
  readonly onKeyDown: KeyboardEventHandler<HTMLInputElement>;
  readonly input: RefObject<HTMLInputElement | null>;
  readonly hasFocus: boolean;
  /** Before and after the input. */
  readonly icon: ReactNode;
  readonly keyHint: ReactNode;
}

/** Groups in the list; the Search page has all. */
const MAX_ROWS = 12;

function useRows(text: string) {
  const { hits, debounced, query, layers } = useLayerHits(text);
  const isSearching = query.isPending || debounced !== text.trim();
  const rows = useMemo(() => {
    const experts = groupByLabel(hits)
      .slice(0, MAX_ROWS)
      .map((group) => ({ id: `${group.hit.run}/${group.hit.expert}`, group, query: debounced }));
    const isFound = hits.length > 0 || query.isPlaceholderData;
    const page = { id: isFound ? "words" : "passage", group: null, query: debounced } as const;
    return query.data === undefined || debounced === "" ? experts : [...experts, page];
  }, [hits, query.data, query.isPlaceholderData, debounced]);
  const note = query.error
    ? messageOf(query.error)
    : hits.length > 0
      ? null
      : isSearching
        ? "Searching…"
        : noMatchText(debounced);
  return { rows, note, isEmpty: debounced === "", layers: layers.map(({ layer }) => layer) };
}

export function SearchComboBox(props: SearchComboBoxProps) {
  const { text, onText, onChoose, onKeyDown, input, hasFocus, icon, keyHint } = props;
  const { rows, note, isEmpty, layers } = useRows(text);
  // The whole box, with its icon and key, not only the input.
  const box = useRef<HTMLDivElement>(null);
  const [first] = rows;
  const isDefault = first?.group?.hit.matched !== "id";
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
          {({ id, group, query }: (typeof rows)[number]) =>
            group === null ? (
              <PageLinkRow {...{ id, query, layers, isDefault }} />
            ) : (
              <HitRow id={id} query={query} {...group} />
            )
          }
        </ListBox>
      </Popover>
    </ComboBox>
  );
}
