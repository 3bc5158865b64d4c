/** The field that finds an expert by id, label, token or words in its examples, and adds it to the tray. */

import { type KeyboardEvent, useState } from "react";
import { ComboBox, Input, ListBox, ListBoxItem, Popover } from "react-aria-components";

import { messageOf } from "@/api/http";
import type { RunSummary, SearchHit } from "@/api/types";
import { HitRow } from "@/components/layout/search/matched-text";
import { useSearchHits } from "@/components/layout/search/search-results";
import { useTray } from "@/components/tray/tray-context";
import { Icon } from "@/components/ui/icon";

interface Choice {
  readonly id: string;
  /** Null for a typed id. */
  readonly hit: SearchHit | null;
}

/** The typed id first, then the search hits. */
function choices(text: string, hits: readonly SearchHit[], numExperts: number): readonly Choice[] {
  const found = hits.map((hit): Choice => ({ id: String(hit.expert), hit }));
  const isId = /^\d+$/.test(text) && Number(text) < numExperts && !found.some(({ id }) => id === text);
  return isId ? [{ id: text, hit: null }, ...found] : found;
}

interface ExpertFieldProps {
  readonly run: RunSummary;
  /** Whether this is not the steered run. */
  readonly isOther: boolean;
  /** Typed before this field was there. */
  readonly typed: string;
  readonly onAdded: () => void;
}

export function ExpertField({ run, isOther, typed, onAdded }: ExpertFieldProps) {
  const tray = useTray();
  const [text, setText] = useState(typed);
  const { hits, debounced, query } = useSearchHits(text, run.indexed_tokens === null ? [] : [run.name]);
  const items = choices(text.trim(), hits, run.num_experts);
  const add = (key: string | number | null) => {
    if (key === null) return;
    const edited = isOther ? run.name : undefined;
    if (!tray.has(Number(key), edited)) tray.toggle(Number(key), edited);
    setText("");
    onAdded();
  };
  const isWaiting = debounced !== text.trim() || query.isFetching;
  /** Enter takes the typed id, else the first match, unless the arrow keys chose another. */
  const addFirst = (event: KeyboardEvent<HTMLInputElement>) => {
    if (event.key !== "Enter" || event.currentTarget.hasAttribute("aria-activedescendant")) return;
    const first = items.find(({ id }) => id === text.trim()) ?? (isWaiting ? undefined : items[0]);
    add(first?.id ?? null);
  };
  const emptyMessage = query.error === null ? (isWaiting ? "Searching" : "No matches") : messageOf(query.error);
  return (
    <ComboBox
      className="add-expert"
      aria-label="Add an expert"
      inputValue={text}
      onInputChange={setText}
      items={items}
      value={null}
      onChange={add}
      allowsEmptyCollection
      menuTrigger="input"
    >
      <div className="row search">
        <Icon name="search" />
        {/* eslint-disable-next-line jsx-a11y/no-autofocus -- it replaces the field that has the focus */}
        <Input placeholder="Label, token, words or id" autoFocus onKeyDown={addFirst} />
      </div>
      <Popover className="popover hits" placement="bottom start" crossOffset={-34} hidden={text.trim() === ""}>
        <ListBox renderEmptyState={() => <p className="dim">{emptyMessage}</p>}>
          {({ id, hit }: Choice) =>
            hit === null ? (
              <ListBoxItem id={id} textValue={`Expert ${id}`} className="hit">
                <span className="mono num ink2">{id}</span> <span className="lab dim">this id</span>
              </ListBoxItem>
            ) : (
              <HitRow id={id} hit={hit} query={text} />
            )
          }
        </ListBox>
      </Popover>
    </ComboBox>
  );
}
