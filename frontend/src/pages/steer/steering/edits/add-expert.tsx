/** Adds an expert to the tray, found by id, label, token or words in its examples. */

import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useState } from "react";
import { ComboBox, Input, ListBox, ListBoxItem, Popover } from "react-aria-components";

import { messageOf } from "@/api/http/errors";
import { routingOptionsQuery } from "@/api/queries";
import type { LayerRun, RunSummary, SearchHit } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { useSearchHits } from "@/components/layout/search/search-results";
import { useCurrentRun } from "@/components/runs/current-run";
import { methodName } from "@/components/runs/run-labels";
import { ShadedText } from "@/components/tokens/shaded-text";
import { useTray } from "@/components/tray/tray-context";
import { Icon } from "@/components/ui/icon";
import { newEdit } from "@/lib/edits/edits";

interface Choice {
  readonly id: string;
  readonly expert: number;
  readonly hit: SearchHit | null;
}

/** The typed id first, then the search hits. */
function choices(text: string, hits: readonly SearchHit[], numExperts: number): readonly Choice[] {
  const searchChoices = hits.map((hit): Choice => ({ id: String(hit.expert), expert: hit.expert, hit }));
  const isId = /^\d+$/.test(text) && Number(text) < numExperts && !searchChoices.some((choice) => choice.id === text);
  return isId ? [{ id: text, expert: Number(text), hit: null }, ...searchChoices] : searchChoices;
}

const MATCH_LABELS = {
  id: "number",
  label: "label",
  token: "top token",
  example: "example",
  related: "related word",
} as const;

function ChoiceRow({ choice }: { readonly choice: Choice }) {
  const { expert, hit } = choice;
  return (
    <ListBoxItem id={choice.id} textValue={hit?.label ?? `Expert ${expert}`} className="hit">
      <span className="mono id">{expert}</span>
      <span className="lab">
        {hit === null ? (
          <span className="dim">this id</span>
        ) : (
          <ExpertLabel label={hit.label} automatic={hit.automatic} />
        )}
      </span>
      <span className="dim">{hit === null ? "" : MATCH_LABELS[hit.matched]}</span>
      {hit?.example != null && (
        <span className="hit-context mono">
          <ShadedText context={hit.example} before={6} after={8} />
        </span>
      )}
    </ListBoxItem>
  );
}

interface AddExpertProps {
  readonly run: RunSummary;
  /** Whether the input takes the focus on opening. */
  readonly focusOnOpen: boolean;
  readonly onAdded: () => void;
}

interface LayerChoiceProps {
  readonly run: RunSummary;
  readonly layers: readonly LayerRun[];
  readonly chosen: string;
  readonly onChoose: (run: string) => void;
}

/** Choice of the layer whose experts are searched. */
function LayerChoice({ run, layers, chosen, onChoose }: LayerChoiceProps) {
  const all = [run, ...layers].toSorted((a, b) => a.layer - b.layer);
  return (
    <label className="layer-choice dim">
      Experts of
      <select value={chosen} onChange={(event) => onChoose(event.target.value)}>
        {all.map((one) => (
          <option key={one.name} value={one.name}>
            Layer {one.layer}, {methodName(one.method)}, {one.name}
          </option>
        ))}
      </select>
    </label>
  );
}

export function AddExpert({ run, focusOnOpen, onAdded }: AddExpertProps) {
  const { data } = useQuery(routingOptionsQuery(run.name));
  const { runs } = useCurrentRun();
  const [chosen, setChosen] = useState(run.name);
  const other = runs.find((one) => one.name === chosen) ?? run;
  return (
    <>
      {data !== undefined && data.layers.length > 0 && (
        <LayerChoice run={run} layers={data.layers} chosen={chosen} onChoose={setChosen} />
      )}
      <ExpertSearch
        key={other.name}
        run={other}
        {...(other.name !== run.name && { editRun: other.name })}
        focusOnOpen={focusOnOpen}
        onAdded={onAdded}
      />
    </>
  );
}

interface ExpertSearchProps extends AddExpertProps {
  /** The run to record in the edit, if it is not the steered run. */
  readonly editRun?: string;
}

function ExpertSearch({ run, editRun, focusOnOpen, onAdded }: ExpertSearchProps) {
  const tray = useTray();
  const [text, setText] = useState("");
  const { hits, debounced, query } = useSearchHits(run.indexed_tokens === null ? "" : text, run.name);
  const items = choices(text.trim(), hits, run.num_experts);
  const add = (key: string | number | null) => {
    if (key === null) return;
    const expert = Number(key);
    if (!tray.has(expert, editRun)) tray.put(newEdit(expert, editRun));
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
      <div className="search">
        <Icon name="search" />
        {/* eslint-disable-next-line jsx-a11y/no-autofocus -- only if it was opened in order to type */}
        <Input placeholder="Label, token, words or id" autoFocus={focusOnOpen} onKeyDown={addFirst} />
      </div>
      <Popover className="popover hits" placement="bottom start" crossOffset={-34} hidden={text.trim() === ""}>
        <ListBox renderEmptyState={() => <p className="dim">{emptyMessage}</p>}>
          {(choice: Choice) => <ChoiceRow choice={choice} />}
        </ListBox>
      </Popover>
    </ComboBox>
  );
}
