/** Search, filters as chips, saved lists, and the number of matching experts. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type SubmitEvent, useEffect, useRef, useState } from "react";
import { Dialog, DialogTrigger, Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";

import { messageOf } from "@/api/http";
import { expertsQuery, fetchAllExperts, listsQuery } from "@/api/queries";
import { canBeHidden, type Filter, formatBound } from "@/components/experts/columns";
import { LabelNote } from "@/components/experts/expert-link";
import { AddToList } from "@/components/lists/add-to-list";
import { recordsCsv } from "@/components/plots/figure";
import { usePageLinks } from "@/components/runs/page-links";
import { ActionMenu } from "@/components/ui/action-menu";
import { Button, LinkButton, RemoveChip, TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { useDebouncedValue } from "@/hooks/use-values";
import { useShortcut } from "@/hooks/use-shortcut";
import { saveFile } from "@/lib/browser/save-file";
import { keyCap } from "@/lib/browser/shortcuts";
import { formatCount } from "@/lib/text/format";
import { visibleText } from "@/lib/text/token-text";

import { type ExpertsView, sortOf, toFilters } from "./experts-params";
import { tableRow, useAvailableColumns, useFittingColumns } from "./table";

interface FilterBarProps {
  readonly run: string;
  readonly view: ExpertsView;
}

/** Adds the experts that match the filters to a list, or to a new one, once all of them are in the table. */
function AddMatching({ run, view }: FilterBarProps) {
  const { data, hasNextPage } = useInfiniteQuery(expertsQuery(run, toFilters(view)));
  const page = data?.pages[0];
  if (!page?.matching || page.matching === page.total || hasNextPage) return null;
  const experts = data?.pages.flatMap((one) => one.experts.map(({ expert }) => expert)) ?? [];
  return (
    <AddToList run={run} experts={experts} className="btn sm" label={`Add ${formatCount(experts.length)} to list`} />
  );
}

function SavedLists({ run, view }: FilterBarProps) {
  const { params, setParams } = view;
  const { lists = [], tags = [] } = useQuery(listsQuery(run)).data ?? {};
  const links = usePageLinks();
  const button = (param: "list" | "tag", value: string | number, none: "" | null, name: string, experts: number) => {
    const isChosen = params[param] === value;
    return (
      <Button
        key={value}
        size="small"
        variant={isChosen ? "chosen" : "plain"}
        aria-pressed={isChosen}
        onClick={() => setParams({ [param]: isChosen ? none : value }, "push")}
      >
        {name} <span className="dim">{formatCount(experts)}</span>
      </Button>
    );
  };
  return (
    <div className="row wrap saved-lists" role="group" aria-label="Lists and tags">
      {lists.length > 0 && <span>Lists</span>}
      {lists.map(({ id, name, experts }) => button("list", id, null, name, experts))}
      {params.list !== null && (
        <LinkButton size="small" variant="ghost" icon="list" to={links.list(params.list)}>
          Open list: order, notes, export
        </LinkButton>
      )}
      {tags.length > 0 && <span>Tags</span>}
      {tags.map(({ tag, experts }) => button("tag", tag, "", tag, experts))}
      <AddMatching run={run} view={view} />
    </div>
  );
}

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

/** Form of one filter: its kind and value. */
function FilterForm({ view: { filters, bounds, setBounds, setParams }, first, onDone }: FilterFormProps) {
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
    <form className="row filter-form" onSubmit={submit}>
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

/** Menu that shows and hides columns. */
function ColumnsMenu({ run, view }: FilterBarProps) {
  const { columns: all, params, setParams } = view;
  const columns = useAvailableColumns(run, all).filter(canBeHidden);
  const fitting = useFittingColumns({ run, view });
  return (
    <MenuTrigger>
      <TriggerButton className="btn columns-button">Columns</TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Menu
          aria-label="Columns"
          selectionMode="multiple"
          selectedKeys={columns.map(({ key }) => key).filter((key) => !params.hide.includes(key))}
          onSelectionChange={(keys) => {
            const hide = columns.map(({ key }) => key).filter((key) => keys !== "all" && !keys.has(key));
            setParams({ hide });
          }}
        >
          {columns.map((column) => (
            <MenuItem key={column.key} id={column.key}>
              {column.header}{" "}
              {!fitting.includes(column) && !params.hide.includes(column.key) && (
                <span className="dim">hidden at this width</span>
              )}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}

const FORMATS = { csv: "CSV", json: "JSON" } as const;
type Format = keyof typeof FORMATS;

/** Exports all experts that match the filters, with the order and columns on screen. */
function ExportTable({ run, view }: FilterBarProps) {
  const [progress, setProgress] = useState("");
  const start = async (format: Format) => {
    setProgress("0");
    try {
      const asked = toFilters(view);
      const rows = await fetchAllExperts(run, asked, (count) => setProgress(formatCount(count)));
      const experts = rows.map((row) => tableRow(row, view.columns, view.params.hide));
      const name = `${run}-experts.${format}`;
      if (format === "csv") saveFile(name, recordsCsv(experts), "text/csv");
      else saveFile(name, JSON.stringify({ run, asked, experts }, null, 2), "application/json");
      setProgress("");
    } catch (error) {
      setProgress(messageOf(error));
    }
  };
  return (
    <>
      {progress !== "" && (
        <span className="dim" role="status">
          {progress}
        </span>
      )}
      <ActionMenu label="Export table" actions={FORMATS} onAction={(format) => void start(format)} className="btn">
        <Icon name="download" /> Export
      </ActionMenu>
    </>
  );
}

function SearchField({ view: { params, setParams } }: Omit<FilterBarProps, "run">) {
  const [text, setText] = useState(params.search);
  const debounced = useDebouncedValue(text);
  const ownChanges = useRef(new Set<string>());
  useEffect(() => {
    ownChanges.current.add(debounced);
    setParams({ search: debounced });
  }, [debounced, setParams]);
  // The URL may change from outside: the Back button, or a removed filter. A change that this field wrote itself may
  // arrive late, after more typing, and must not undo that.
  useEffect(() => {
    if (ownChanges.current.delete(params.search)) return;
    ownChanges.current.clear();
    setText(params.search);
  }, [params.search]);
  return (
    <div className="row search" role="search">
      <Icon name="search" />
      <input
        type="search"
        aria-label="Filter by label, token or example"
        placeholder="Filter by label, token or example"
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") setParams({ search: text });
        }}
      />
    </div>
  );
}

interface ChipProps extends Omit<FilterBarProps, "run"> {
  readonly filter: Filter;
  readonly value: number;
}

function FilterChip({ filter, value, view }: ChipProps) {
  const { name, label, sign, unit } = filter;
  const remove = () => view.setBounds({ [name]: null }, "push");
  const text = `${label} ${sign} ${formatBound(filter, value)} ${unit}`.trim();
  return (
    <span className="chip">
      <DialogTrigger>
        <TriggerButton
          aria-label={`Edit filter ${text}`}
          onKeyDown={(event) => {
            if (event.key === "Backspace" || event.key === "Delete") remove();
          }}
        >
          <span className="dim">{label}</span> {text.slice(label.length + 1)}
        </TriggerButton>
        <Popover className="popover" placement="bottom start">
          <Dialog aria-label="Edit filter">
            {({ close }) => <FilterForm view={view} first={name} onDone={close} />}
          </Dialog>
        </Popover>
      </DialogTrigger>
      <RemoveChip label={`Remove filter ${text}`} onRemove={remove} />
    </span>
  );
}

interface ValueChipProps {
  readonly kind: string;
  readonly value: string;
  readonly onRemove: () => void;
}

/** A filter that is not a bound. */
function ValueChip({ kind, value, onRemove }: ValueChipProps) {
  return (
    <span className="chip">
      <span>
        <span className="dim">{kind}</span> {value}
      </span>
      <RemoveChip label={`Remove filter ${kind} ${value}`} onRemove={onRemove} />
    </span>
  );
}

function AddFilter({ view }: Omit<FilterBarProps, "run">) {
  const [isOpen, setOpen] = useState(false);
  useShortcut("filter", () => setOpen(true));
  return (
    <DialogTrigger isOpen={isOpen} onOpenChange={setOpen}>
      <TriggerButton className="btn ghost">
        <Icon name="plus" />
        Filter<kbd aria-hidden="true">{keyCap("filter")}</kbd>
      </TriggerButton>
      <Popover className="popover" placement="bottom start">
        <Dialog aria-label="Add filter">
          <FilterForm view={view} first={view.filters[0]?.name ?? ""} onDone={() => setOpen(false)} />
        </Dialog>
      </Popover>
    </DialogTrigger>
  );
}

/** How many match, their order, and what marks labels. */
function TableKey({ run, view }: FilterBarProps) {
  const { data, isPlaceholderData } = useInfiniteQuery(expertsQuery(run, toFilters(view)));
  const page = data?.pages[0];
  const available = useAvailableColumns(run, view.columns);
  const columns = view.columns.filter(
    (column) => column.sortable && (available.includes(column) || column.key === sortOf(view)),
  );
  return (
    <div className="row wrap table-key dim">
      {page === undefined ? (
        <span className="count" />
      ) : (
        <span className="count" role="status" aria-busy={isPlaceholderData}>
          <b>{formatCount(page.matching)}</b> of {formatCount(page.total)}
        </span>
      )}
      {page !== undefined && page.late > 0 && (
        <span title="With a weak label or none, or active on more than 1 % of tokens">
          {formatCount(page.late)} weak or common ones follow
        </span>
      )}
      <label className="row">
        sorted by
        <select
          title="Labels that are not weak, of experts active on at most 1 % of tokens"
          value={sortOf(view)}
          onChange={(event) => view.setParams({ sort: event.target.value, order: "default" }, "push")}
        >
          {view.params.search.trim() !== "" && <option value="match">best match</option>}
          {view.isSteerable && <option value="credible">labels that are not weak first, then steerability</option>}
          {columns.map(({ key, title }) => (
            <option key={key} value={key}>
              {title.toLowerCase()}
            </option>
          ))}
        </select>
      </label>
      <span className="grow" />
      <span>
        <LabelNote />
      </span>
    </div>
  );
}

interface BarProps extends FilterBarProps {
  /** Opens a steerable expert, steered. */
  readonly onSurprise: () => void;
}

export function FilterBar({ run, view, onSurprise }: BarProps) {
  const links = usePageLinks();
  const { params } = view;
  const { data } = useInfiniteQuery(expertsQuery(run, toFilters(view)));
  return (
    <section className="row wrap filters" aria-label="Search and filters">
      <SearchField view={view} />
      {view.filters.map((filter) => {
        const value = view.bounds[filter.name] ?? null;
        return value === null ? null : <FilterChip key={filter.name} filter={filter} value={value} view={view} />;
      })}
      {params.token !== "" && (
        <ValueChip
          kind="fires on"
          value={visibleText(params.token)}
          onRemove={() => view.setParams({ token: "" }, "push")}
        />
      )}
      {params.among.length > 0 && (
        <ValueChip
          kind="lasso"
          value={`${formatCount(params.among.length)} experts`}
          onRemove={() => view.setParams({ among: [] }, "push")}
        />
      )}
      <AddFilter view={view} />
      {params.search !== "" && data?.pages[0]?.matching !== 0 && (
        <LinkButton to={links.page("search", { text: params.search })}>Matches, with reasons</LinkButton>
      )}
      <span className="grow" />
      <Button
        icon="dice"
        shortcut="surprise"
        title="Opens a random steerable expert and steers with it"
        onClick={onSurprise}
      >
        Surprise me
      </Button>
      <ExportTable run={run} view={view} />
      <ColumnsMenu run={run} view={view} />
      <SavedLists run={run} view={view} />
      <TableKey run={run} view={view} />
    </section>
  );
}
