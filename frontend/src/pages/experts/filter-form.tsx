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

interface FilterFormProps {
  readonly params: ExpertsParams;
  readonly setParams: SetExpertsParams;
  readonly first: FilterName;
  readonly onDone: () => void;
}

const TITLES: Readonly<Record<FilterName, string>> = {
  min_usage: "Usage at least",
  max_usage: "Usage at most",
  min_largest: "Largest coefficient at least",
};

export function FilterForm({ params, setParams, first, onDone }: FilterFormProps) {
  const [name, setName] = useState<FilterName>(first);
  const [text, setText] = useState(() => (params[first] === null ? "" : boundText(first, params[first])));
  const value = Number(text.replace(",", "."));
  const isValid = text.trim() !== "" && Number.isFinite(value) && value >= 0;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (!isValid) return;
    setParams({ [name]: value / FILTERS[name].scale }, "push");
    onDone();
  };
  return (
    <form className="filter-form" onSubmit={submit}>
      <select
        aria-label="What to filter by"
        value={name}
        onChange={(event) => setName(event.target.value as FilterName)}
      >
        {FILTER_NAMES.map((option) => (
          <option key={option} value={option}>
            {TITLES[option]}
          </option>
        ))}
      </select>
      <span className="field number" data-invalid={(text !== "" && !isValid) || undefined}>
        <input
          inputMode="decimal"
          aria-label={`${TITLES[name]}, ${FILTERS[name].unit || "coefficient"}`}
          aria-invalid={text !== "" && !isValid}
          // eslint-disable-next-line jsx-a11y/no-autofocus -- it was opened in order to type
          autoFocus
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <span className="dim">{FILTERS[name].unit}</span>
      </span>
      <Button type="submit" variant="primary" size="small" disabled={!isValid}>
        Apply
      </Button>
    </form>
  );
}
