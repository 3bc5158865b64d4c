/** Form of one filter: its kind and value. */

import { type SubmitEvent, useState } from "react";

import { Button } from "@/components/ui/button";
import {
  formatBound,
  type ExpertsParams,
  FILTER_NAMES,
  type FilterName,
  FILTERS,
  type SetExpertsParams,
} from "@/pages/explore/experts/experts-params";

type Kind = FilterName | "token";

interface FilterFormProps {
  readonly params: ExpertsParams;
  readonly setParams: SetExpertsParams;
  readonly first: FilterName;
  readonly onDone: () => void;
}

const TITLES: Readonly<Record<Kind, string>> = {
  min_density: "Density at least",
  max_density: "Density at most",
  min_max_activation: "Max activation at least",
  min_recurrence: "Found again at least",
  token: "Fires on token",
};
const KINDS: readonly Kind[] = [...FILTER_NAMES, "token"];

/** The parameter set by the typed value; null for invalid numbers. */
function parseFilter(kind: Kind, text: string): Partial<ExpertsParams> | null {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  if (kind === "token") return { token: trimmed };
  const value = Number(trimmed.replace(",", "."));
  return Number.isFinite(value) && value >= 0 ? { [kind]: value / FILTERS[kind].scale } : null;
}

export function FilterForm({ params, setParams, first, onDone }: FilterFormProps) {
  const [kind, setKind] = useState<Kind>(first);
  const [text, setText] = useState(() => (params[first] === null ? "" : formatBound(first, params[first])));
  const change = parseFilter(kind, text);
  const unit = kind === "token" ? "" : FILTERS[kind].unit;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (change === null) return;
    setParams(change, "push");
    onDone();
  };
  return (
    <form className="filter-form" onSubmit={submit}>
      <select aria-label="Filter by" value={kind} onChange={(event) => setKind(event.target.value as Kind)}>
        {KINDS.map((option) => (
          <option key={option} value={option}>
            {TITLES[option]}
          </option>
        ))}
      </select>
      <span className="field number" data-invalid={(text !== "" && change === null) || undefined}>
        <input
          inputMode={kind === "token" ? "text" : "decimal"}
          aria-label={kind === "token" ? TITLES.token : `${TITLES[kind]}, ${unit || "activation"}`}
          aria-invalid={text !== "" && change === null}
          // eslint-disable-next-line jsx-a11y/no-autofocus -- it is opened in order to type
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
