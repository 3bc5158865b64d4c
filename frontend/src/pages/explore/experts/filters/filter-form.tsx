/** Form of one filter: its kind and value. */

import { type SubmitEvent, useState } from "react";

import { Button } from "@/components/ui/button";
import { type Filter, formatBound } from "@/components/experts/columns";
import type { ExpertsView } from "@/pages/explore/experts/experts-params";

interface FilterFormProps {
  readonly view: ExpertsView;
  /** Name of the filter. */
  readonly first: string;
  readonly onDone: () => void;
}

const TOKEN = "token";
const TOKEN_TITLE = "Fires on token";

/** The bound that was typed; null for an invalid number. */
function parseBound({ scale }: Filter, text: string): number | null {
  const value = Number(text.replace(",", "."));
  return Number.isFinite(value) && value >= 0 ? value / scale : null;
}

export function FilterForm({ view: { filters, bounds, setBounds, setParams }, first, onDone }: FilterFormProps) {
  const find = (name: string) => filters.find((filter) => filter.name === name);
  const [kind, setKind] = useState(first);
  const [text, setText] = useState(() => {
    const [filter, value] = [find(first), bounds[first] ?? null];
    return filter === undefined || value === null ? "" : formatBound(filter, value);
  });
  const filter = find(kind);
  const typed = text.trim();
  const bound = filter === undefined || typed === "" ? null : parseBound(filter, typed);
  const isValid = typed !== "" && (filter === undefined || bound !== null);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (!isValid) return;
    if (filter === undefined) setParams({ token: typed }, "push");
    else setBounds({ [filter.name]: bound }, "push");
    onDone();
  };
  return (
    <form className="filter-form" onSubmit={submit}>
      <select aria-label="Filter by" value={kind} onChange={(event) => setKind(event.target.value)}>
        {filters.map(({ name, title }) => (
          <option key={name} value={name}>
            {title}
          </option>
        ))}
        <option value={TOKEN}>{TOKEN_TITLE}</option>
      </select>
      <span className="field number" data-invalid={(text !== "" && !isValid) || undefined}>
        <input
          inputMode={filter === undefined ? "text" : "decimal"}
          aria-label={filter === undefined ? TOKEN_TITLE : `${filter.title}, ${filter.unit || "activation"}`}
          aria-invalid={text !== "" && !isValid}
          // eslint-disable-next-line jsx-a11y/no-autofocus -- it is opened in order to type
          autoFocus
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <span className="dim">{filter?.unit}</span>
      </span>
      <Button type="submit" variant="primary" size="small" disabled={!isValid}>
        Apply
      </Button>
    </form>
  );
}
