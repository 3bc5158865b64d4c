/** Table of runs, grouped by the MLP that they replace or sorted by a column. */

import type { MouseEvent } from "react";
import { Link } from "react-router";

import type { RunList, RunStatus, RunSummary, TermId } from "@/api/types";
import { pageLinks, usePageLinks } from "@/components/runs/page-links";
import { activeK, decisiveShare, hasTokenCount, methodName, shortSource } from "@/components/runs/run-labels";
import { type ChangeSorting, SortHeader, type Sorting } from "@/components/table/sort-header";
import { useTermName } from "@/components/terms/term";
import { ScrollBox } from "@/components/ui/pane-head";
import { useNow } from "@/hooks/use-values";
import { choiceParam } from "@/hooks/use-url-state";
import { formatAgo, formatCompact, formatCount, formatFixed, formatPercent, formatShare } from "@/lib/text/format";

/** Share of a run's experts that are active on no indexed token; null if it is not indexed. */
const deadShare = ({ num_experts: count, active_experts: active }: RunSummary) =>
  active === null ? null : 1 - active / count;

/** What the runs can be sorted by. */
const KEYS = {
  layer: ({ layer }: RunSummary) => layer,
  name: ({ name }: RunSummary) => name,
  num_experts: (run: RunSummary) => run.num_experts,
  k: ({ k }: RunSummary) => k,
  parameters: ({ parameters }: RunSummary) => parameters,
  trained_tokens: (run: RunSummary) => run.trained_tokens,
  held_out_mse: (run: RunSummary) => run.held_out?.normalized_mse ?? null,
  loss_recovered: (run: RunSummary) => run.held_out?.loss_recovered.value ?? null,
  routing_share: decisiveShare,
  dead: deadShare,
  updated: (run: RunSummary) => run.updated_at,
} as const;
type Sort = keyof typeof KEYS;

export const RUNS_PARAMS = {
  /** By layer, the runs are grouped. */
  sort: choiceParam(Object.keys(KEYS) as Sort[], "layer"),
  order: choiceParam(["asc", "desc"], "asc"),
};

function compareKeys(a: number | string, b: number | string): number {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en");
}

/** Runs without a value come last in both orders. */
export function sortedRuns(runs: readonly RunSummary[], sort: Sort, order: "asc" | "desc"): readonly RunSummary[] {
  const key = KEYS[sort];
  const sign = order === "asc" ? 1 : -1;
  return runs.toSorted((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return sign * compareKeys(a, b) || one.name.localeCompare(other.name, "en");
  });
}

/** Runs of one MLP. Only their losses and errors are comparable. */
interface RunGroup {
  readonly model: string;
  readonly layer: number;
  readonly runs: readonly RunSummary[];
}

const isTraining = ({ runs }: RunGroup) => runs.some(({ status }) => status === "training");

/** One group per MLP; those with a run in training come first. */
export function groupedRuns(runs: readonly RunSummary[], order: "asc" | "desc" = "asc"): readonly RunGroup[] {
  const groups = new Map<string, RunGroup>();
  for (const run of sortedRuns(runs, "layer", order)) {
    const mlp = `${run.language_model} ${run.layer}`;
    const before = groups.get(mlp)?.runs ?? [];
    groups.set(mlp, { model: run.language_model_name, layer: run.layer, runs: [...before, run] });
  }
  return [...groups.values()].toSorted(
    (a, b) => Number(isTraining(b)) - Number(isTraining(a)) || a.model.localeCompare(b.model, "en"),
  );
}

/** Status of a run as a word and a mark, so that it does not rely on colour alone. */
export function StatusWord({ status }: { readonly status: RunStatus }) {
  return (
    <span className="status-word" data-status={status}>
      {status}
    </span>
  );
}

const missing = (title: string) => (
  <span className="dim" title={title}>
    –
  </span>
);
const NOT_EVALUATED = missing("Not evaluated on held-out text");
const NOT_INDEXED = missing("Not indexed");

function Progress({ run }: { readonly run: RunSummary }) {
  if (!hasTokenCount(run)) return <span className="dim">unknown</span>;
  const share = Math.min(1, run.trained_tokens / run.target_tokens);
  return (
    <>
      {share < 1 && <progress value={share} aria-hidden="true" />}
      {formatCompact(run.trained_tokens)}
      {share < 1 && <span className="dim"> of {formatCompact(run.target_tokens)}</span>}
    </>
  );
}

interface Column {
  readonly sort: Sort;
  /** Null for the strict routing share, whose name is the server’s. */
  readonly name: string | null;
  readonly unit?: string;
  readonly className?: string;
  readonly term?: TermId;
}

const COLUMNS: readonly Column[] = [
  { sort: "layer", name: "Layer", className: "num r-layer", term: "layer" },
  { sort: "num_experts", name: "Experts", unit: "N", className: "num r-size", term: "expert" },
  { sort: "k", name: "Active", unit: "K", className: "num r-size", term: "k" },
  { sort: "parameters", name: "Parameters", className: "num r-wide" },
  { sort: "trained_tokens", name: "Tokens", className: "num r-tokens", term: "trained_tokens" },
  { sort: "held_out_mse", name: "MSE", unit: "held-out", className: "num r-metric", term: "normalised_mse" },
  { sort: "loss_recovered", name: "Loss recovered", unit: "%", className: "num r-loss", term: "loss_recovered" },
  { sort: "routing_share", name: null, unit: "%", className: "num r-metric", term: "strict_routing_share" },
  { sort: "dead", name: "Dead", unit: "% in index", className: "num r-metric r-dead", term: "dead_share" },
  { sort: "updated", name: "Updated", className: "num r-wide" },
];

/** Sample of an evaluation, shown on hover. */
function sample({ held_out: found }: RunSummary): string | undefined {
  if (found === null) return undefined;
  const seen = found.seen_text ? ", which the run was trained on" : "";
  return `${formatCount(found.tokens)} tokens of ${shortSource(found.text)}${seen}`;
}

function LossRecovered({ run }: { readonly run: RunSummary }) {
  if (run.held_out === null) return NOT_EVALUATED;
  const { value, low, high } = run.held_out.loss_recovered;
  return (
    <>
      {formatPercent(value, 1)}{" "}
      <span className="dim r-interval">
        {formatPercent(low, 1)} to {formatPercent(high, 1)}
      </span>
    </>
  );
}

function Dead({ run }: { readonly run: RunSummary }) {
  const dead = deadShare(run);
  if (dead === null || run.indexed_tokens === null) return NOT_INDEXED;
  return (
    <span title={`active on none of ${formatCount(run.indexed_tokens)} indexed tokens`}>
      {formatShare(dead, 1)} <span className="dim r-interval">in {formatCompact(run.indexed_tokens)}</span>
    </span>
  );
}

/** The routing share, with an asterisk where a footnote explains it; null if it was not measured. */
function shareText(run: RunSummary, unit: string): string | null {
  const share = decisiveShare(run);
  return share === null ? null : `${formatPercent(share, 1)}${unit}${share > 1 ? "*" : ""}`;
}

/** The strict share, or the other one if that is all there is. */
function RoutingShare({ run }: { readonly run: RunSummary }) {
  const share = shareText(run, "");
  if (share === null) return NOT_EVALUATED;
  return (
    <>
      {share} {run.strict_routing_share === null && <span className="dim r-interval">not strict</span>}
    </>
  );
}

/** What the hidden columns of a narrow screen hold. */
function Facts({ run }: { readonly run: RunSummary }) {
  const routing = useTermName("strict_routing_share");
  const facts = [
    ["Layer", run.layer],
    ["Method", methodName(run.method)],
    ["N", formatCount(run.num_experts)],
    ["K", activeK(run)],
    ["MSE", run.held_out === null ? "–" : formatFixed(run.held_out.normalized_mse, 3)],
    [routing, shareText(run, "\u00a0%") ?? "–"],
  ] as const;
  return (
    <dl className="r-facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt className="dim">{name}</dt> <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

interface RunRowProps {
  readonly run: RunSummary;
  /** Metrics that are bold. */
  readonly best: RunList["best"][string] | undefined;
  readonly now: number;
  readonly withModel: boolean;
}

function RunRow({ run, best = [], now, withModel }: RunRowProps) {
  const links = usePageLinks();
  /** The link opens on a click anywhere in the row, unless text is being selected. */
  const openRun = ({ target, currentTarget, nativeEvent }: MouseEvent<HTMLTableRowElement>) => {
    if ((target as Element).closest("a") !== null || getSelection()?.isCollapsed === false) return;
    currentTarget.querySelector("a")?.dispatchEvent(new window.MouseEvent("click", nativeEvent));
  };
  const win = (metric: (typeof best)[number]) => (best.includes(metric) ? " r-best" : "");
  const { held_out: heldOut } = run;
  return (
    <tr className="r-run" onClick={openRun}>
      <td className="r-name">
        <Link className="mono" to={links.run(run.name)}>
          {run.name}
        </Link>
        {run.status !== "finished" && <StatusWord status={run.status} />}
        <Facts run={run} />
      </td>
      {withModel && <td className="r-model mono cut">{run.language_model_name}</td>}
      <td className="r-size">{methodName(run.method)}</td>
      <td className="num r-layer">{run.layer}</td>
      <td className="num r-size">{formatCount(run.num_experts)}</td>
      <td className="num r-size">{activeK(run)}</td>
      <td className="num r-wide">{formatCompact(run.parameters)}</td>
      <td className="num r-tokens">
        <Progress run={run} />
      </td>
      <td className={`num r-metric${win("normalized_mse")}`} title={sample(run)}>
        {heldOut === null ? NOT_EVALUATED : formatFixed(heldOut.normalized_mse, 4)}
      </td>
      <td className={`num r-loss${win("loss_recovered_mean")}`} title={sample(run)}>
        <LossRecovered run={run} />
      </td>
      <td className="num r-metric" title={sample(run)}>
        <RoutingShare run={run} />
      </td>
      <td className={`num r-metric r-dead${win("dead_in_index")}`}>
        <Dead run={run} />
      </td>
      <td className="num dim r-wide">{formatAgo(run.updated_at, now)}</td>
    </tr>
  );
}

/** Heading of several runs of one MLP, with a link that compares them. */
function GroupRow({ group, columns }: { readonly group: RunGroup; readonly columns: number }) {
  return (
    <tr className="r-group">
      <th scope="rowgroup" colSpan={columns}>
        Layer {group.layer} <span className="unit">{group.runs.length} runs of one MLP</span>
        <Link className="link" to={pageLinks(group.runs[0]?.name ?? "").page("evaluate")}>
          Compare<span className="sr"> the runs of layer {group.layer}</span>
        </Link>
      </th>
    </tr>
  );
}

interface RunsTableProps {
  readonly runs: RunList["runs"];
  readonly best: RunList["best"];
  readonly withModel: boolean;
  readonly sorting: Sorting<Sort>;
  readonly onSort: ChangeSorting<Sort>;
}

export function RunsTable({ runs, best, withModel, sorting, onSort }: RunsTableProps) {
  const now = useNow(10_000);
  const routing = useTermName("strict_routing_share");
  const isGrouped = sorting.sort === "layer";
  const row = (run: RunSummary) => <RunRow key={run.name} {...{ run, now, withModel }} best={best[run.name]} />;
  const header = ({ sort, name, unit, className, term }: Column) => (
    <SortHeader key={sort} column={sort} sorting={sorting} onSort={onSort} className={className} term={term}>
      {name ?? routing} {unit !== undefined && <span className="unit">{unit}</span>}
    </SortHeader>
  );
  return (
    <ScrollBox className="runs-box" label="Runs">
      <table className="grid plain runs-table">
        <thead>
          <tr>
            {header({ sort: "name", name: "Run", className: "r-name", term: "run" })}
            {withModel && (
              <th className="r-model" scope="col">
                Language model
              </th>
            )}
            <th className="r-size" scope="col">
              Method
            </th>
            {COLUMNS.map(header)}
          </tr>
        </thead>
        {isGrouped ? (
          groupedRuns(runs, sorting.order).map((group) => (
            <tbody key={`${group.model} ${group.layer}`}>
              {group.runs.length > 1 && <GroupRow group={group} columns={COLUMNS.length + 2 + Number(withModel)} />}
              {group.runs.map(row)}
            </tbody>
          ))
        ) : (
          <tbody>{sortedRuns(runs, sorting.sort, sorting.order).map(row)}</tbody>
        )}
      </table>
    </ScrollBox>
  );
}
