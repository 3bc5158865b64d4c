/** The expert as files: its statistics, and its examples as they are shown. */

import { useQueryClient } from "@tanstack/react-query";

import type { Example, ExpertDetail } from "@/api/types";
import { type FigureTable, recordsCsv, toCsv } from "@/components/plots/figure";
import { ALIGNED_AFTER, ALIGNED_BEFORE, type ConcordanceMode, SNIPPET_TOKENS } from "@/components/tokens/concordance";
import { displayText } from "@/components/tokens/token-text";
import { useColumns } from "@/hooks/use-experts";
import { useUrlState } from "@/hooks/use-url-state";
import { saveFile } from "@/lib/browser/save-file";
import { kwicWindow, type Piece, pieces, snippet } from "@/lib/text/kwic";
import { tableRow } from "@/pages/explore/experts/table";

import { EXPERT_PARAMS } from "./expert-params";
import { shownGroups } from "./shown-examples";

/** Layout of the examples. */
interface ExampleLayout {
  readonly view: ConcordanceMode;
  readonly breaks: boolean;
}

/** One group of examples, in the order on screen. */
export interface ShownGroup {
  /** `top`, `bin 1`, …, `random sample`. */
  readonly name: string;
  /** Bounds of the activation; null for the random sample. */
  readonly low: number | null;
  readonly high: number | null;
  /** Share of all activations. */
  readonly share: number | null;
  readonly examples: readonly Example[];
  /** Number of duplicates left out. */
  readonly duplicates: number;
}

function splitAtPeak(example: Example, view: ConcordanceMode) {
  if (view === "aligned") return kwicWindow(example, ALIGNED_BEFORE, ALIGNED_AFTER);
  const all = view === "full" ? pieces(example) : snippet(example, SNIPPET_TOKENS);
  const peak = all.find((piece) => piece.index === example.position);
  if (peak === undefined) return null;
  return {
    left: all.filter((piece) => piece.index < example.position),
    peak,
    right: all.filter((piece) => piece.index > example.position),
  };
}

/** An example, cut as on screen, split at the peak. */
export function splitText(example: Example, { view, breaks }: ExampleLayout) {
  const layout = view === "full" ? "block" : "line";
  const join = (shown: readonly Piece[] = []) => shown.map((piece) => displayText(piece.text, layout, breaks)).join("");
  const window = splitAtPeak(example, view);
  return { before: join(window?.left), token: join(window ? [window.peak] : []), after: join(window?.right) };
}

const GROUP_COLUMNS = ["group", "low", "high", "share of active tokens"];
const EXAMPLE_COLUMNS = ["activation", "sequence", "position", "before", "token", "after"] as const;

/** One row per example. */
export function examplesTable(groups: readonly ShownGroup[], layout: ExampleLayout): FigureTable {
  const rows = groups.flatMap(({ name, low, high, share, examples }) =>
    examples.map((example) => {
      const own = { ...example, ...splitText(example, layout) };
      const row = [name, low, high, share, ...EXAMPLE_COLUMNS.map((column) => own[column])];
      return row.map((value) => String(value ?? ""));
    }),
  );
  return { columns: [...GROUP_COLUMNS, ...EXAMPLE_COLUMNS], rows };
}

/** Statistics and examples in one file. `seed` is the random sample's. */
export function expertJson(
  run: string,
  detail: ExpertDetail,
  groups: readonly ShownGroup[],
  layout: ExampleLayout & { readonly seed: number },
): string {
  const { view, breaks, seed } = layout;
  const exported = groups.map(({ examples, ...group }) => ({
    ...group,
    examples: examples.map((example) => {
      const { activation, sequence, position, active } = example;
      return { activation, sequence, position, ...splitText(example, layout), active };
    }),
  }));
  return JSON.stringify({ run, ...detail, shown: { view, breaks, seed }, groups: exported }, null, 2);
}

export const FILES = {
  json: "Download everything shown, JSON",
  examples: "Download examples, CSV",
  statistics: "Download statistics, CSV",
} as const;

/** Saves one of the `FILES`. */
export function useDownload(run: string, detail: ExpertDetail) {
  const queries = useQueryClient();
  const columns = useColumns();
  const [params] = useUrlState(EXPERT_PARAMS);
  return (kind: keyof typeof FILES) => {
    const name = `${run}-${detail.row.expert}`;
    if (kind === "statistics") {
      saveFile(`${name}-statistics.csv`, recordsCsv([tableRow(detail.row, columns, [])]), "text/csv");
      return;
    }
    const groups = shownGroups(queries, run, detail, params);
    if (kind === "examples") saveFile(`${name}-examples.csv`, toCsv(examplesTable(groups, params)), "text/csv");
    else saveFile(`${name}.json`, expertJson(run, detail, groups, params), "application/json");
  };
}
