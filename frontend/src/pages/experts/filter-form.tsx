/** One filter: which bound, and its value. */

import { type SubmitEvent, useState } from "react";

import { Button } from "@/components/button";

import {
  boundText,
  type ExpertsParams,
  FILTER_NAMES,
  type FilterName,
  FILTERS,
  type SetExpertsParams,
} from "./experts-params";

/** A bound, or a token that experts fire on. */
type Kind = FilterName | "token";

interface FilterFormProps {
  readonly params: ExpertsParams;
  readonly setParams: SetExpertsParams;
  readonly first: FilterName;
  readonly onDone: () => void;
}

const TITLES: Readonly<Record<Kind, string>> = {
  min_usage: "Usage at least",
  max_usage: "Usage at most",
  min_largest: "Largest coefficient at least",
  token: "Fires on the token",
};
const KINDS: readonly Kind[] = [...FILTER_NAMES, "token"];

/** What is typed as the parameter it sets; null where it is no number. */
function changeOf(kind: Kind, text: string): Partial<ExpertsParams> | null {
  const typed = text.trim();
  if (typed === "") return null;
  if (kind === "token") return { token: typed };
  const value = Number(typed.replace(",", "."));
  return Number.isFinite(value) && value >= 0 ? { [kind]: value / FILTERS[kind].scale } : null;
}

export function FilterForm({ params, setParams, first, onDone }: FilterFormProps) {
  const [kind, setKind] = useState<Kind>(first);
  const [text, setText] = useState(() => (params[first] === null ? "" : boundText(first, params[first])));
  const change = changeOf(kind, text);
  const unit = kind === "token" ? "" : FILTERS[kind].unit;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (change === null) return;
    setParams(change, "push");
    onDone();
  };
  return (
    <form className="filter-form" onSubmit={submit}>
      <select aria-label="What to filter by" value={kind} onChange={(event) => setKind(event.target.value as Kind)}>
        {KINDS.map((option) => (
          <option key={option} value={option}>
            {TITLES[option]}
          </option>
        ))}
      </select>
      <span className="field number" data-invalid={(text !== "" && change === null) || undefined}>
        <input
          inputMode={kind === "token" ? "text" : "decimal"}
          aria-label={kind === "token" ? TITLES.token : `${TITLES[kind]}, ${unit || "coefficient"}`}
          aria-invalid={text !== "" && change === null}
          // eslint-disable-next-line jsx-a11y/no-autofocus -- it was opened in order to type
          autoFocus
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <span className="dim">{unit}</span>
      </span>
      <Button type="submit" variant="primary" size="small" disabled={change === null}>
        Apply
      </Button>
    </form>
  );
}
