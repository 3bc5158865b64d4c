/** Adding an expert to the tray: by its id, its label, its tokens or words in its contexts. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { ComboBox, Input, ListBox, ListBoxItem, Popover } from "react-aria-components";

import { messageOf } from "@/api/errors";
import { liveQuery } from "@/api/queries";
import type { LayerRun, RunSummary, SearchHit } from "@/api/types";
import { useCurrentRun } from "@/components/current-run";
import { ExpertLabel } from "@/components/expert-ref";
import { Icon } from "@/components/icon";
import { Segmented } from "@/components/segmented";
import { useSearchHits } from "@/components/shell/search-results";
import { ShadedText } from "@/components/tokens/shaded-text";
import { useTray } from "@/components/tray/tray-context";
import { newEdit } from "@/lib/edits";

interface Choice {
  readonly id: string;
  readonly expert: number;
  readonly hit: SearchHit | null;
}

/** The id that was typed comes first, then what the search found. */
function choices(text: string, hits: readonly SearchHit[], numExperts: number): readonly Choice[] {
  const found = hits.map((hit): Choice => ({ id: String(hit.expert), expert: hit.expert, hit }));
  const isId = /^\d+$/.test(text) && Number(text) < numExperts && !found.some((choice) => choice.id === text);
  return isId ? [{ id: text, expert: Number(text), hit: null }, ...found] : found;
}

const MATCHES = { label: "label", token: "top token", context: "context" } as const;

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
      <span className="dim">{hit === null ? "" : MATCHES[hit.matched]}</span>
      {hit?.context != null && (
        <span className="hit-context mono">
          <ShadedText context={hit.context} before={6} after={8} />
        </span>
      )}
    </ListBoxItem>
  );
}

interface AddExpertProps {
  readonly run: RunSummary;
  /** Whether it was opened in order to type here. */
  readonly takesFocus: boolean;
  readonly onAdded: () => void;
}

interface LayerChoiceProps {
  readonly run: RunSummary;
  readonly layers: readonly LayerRun[];
  readonly chosen: string;
  readonly onChoose: (run: string) => void;
}

/** Whose experts are added: of this layer, or of another one that has a run. */
function LayerChoice({ run, layers, chosen, onChoose }: LayerChoiceProps) {
  const all = [{ name: run.name, layer: run.layer }, ...layers].toSorted((a, b) => a.layer - b.layer);
  const isAlone = (layer: number) => all.filter((one) => one.layer === layer).length === 1;
  return (
    <div className="layer-choice">
      <span className="dim">Layer</span>
      <Segmented
        label="Layer of the expert"
        value={chosen}
        onChange={onChoose}
        segments={all.map(({ name, layer }) => ({
          value: name,
          label: isAlone(layer) ? String(layer) : name,
          name: `${name}, layer ${layer}`,
        }))}
      />
    </div>
  );
}

export function AddExpert({ run, takesFocus, onAdded }: AddExpertProps) {
  const { data } = useQuery(liveQuery(run.name));
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
        {...(other.name !== run.name && { of: other.name })}
        takesFocus={takesFocus}
        onAdded={onAdded}
      />
    </>
  );
}

interface ExpertSearchProps extends AddExpertProps {
  /** The run, where it is of another layer than the one that is steered. */
  readonly of?: string;
}

function ExpertSearch({ run, of, takesFocus, onAdded }: ExpertSearchProps) {
  const tray = useTray();
  const [text, setText] = useState("");
  const { hits, settled, query } = useSearchHits(run.indexed_tokens === null ? "" : text, run.name);
  const items = choices(text.trim(), hits, run.num_experts);
  const add = (key: string | number | null) => {
    if (key === null) return;
    const expert = Number(key);
    if (!tray.has(expert, of)) tray.put(newEdit(expert, of));
    setText("");
    onAdded();
  };
  const isWaiting = settled !== text.trim() || query.isFetching;
  const nothing = query.error === null ? (isWaiting ? "Searching" : "Nothing found") : messageOf(query.error);
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
        {/* eslint-disable-next-line jsx-a11y/no-autofocus -- only where it was opened in order to type here */}
        <Input placeholder="Label, token, words or id" autoFocus={takesFocus} />
      </div>
      <Popover className="popover hits" placement="bottom start" crossOffset={-34} hidden={text.trim() === ""}>
        <ListBox renderEmptyState={() => <p className="dim">{nothing}</p>}>
          {(choice: Choice) => <ChoiceRow choice={choice} />}
        </ListBox>
      </Popover>
    </ComboBox>
  );
}
